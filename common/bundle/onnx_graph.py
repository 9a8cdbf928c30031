"""A trained half as an ONNX graph, which any ONNX runtime executes without FLORIST and torch.

    passive   numeric, categories                             -> embeddings
    active    embeddings, and numeric, categories if it has any -> probabilities

The graph is built from the layers of `models.py`, so that no tracing is involved. Requires the
package `onnx`.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from florist.common.bundle.bundle import PassiveBundle
from florist.common.core.errors import ConfigurationError
from florist.common.synthetic.calibration import Mixture

if TYPE_CHECKING:
    import numpy.typing as npt
    from onnx import ModelProto, NodeProto, ValueInfoProto
    from torch import Tensor, nn

    from florist.common.bundle.bundle import ActiveBundle
    from florist.common.training.models import ActiveModel, BottomModel, FeatureTower, TopModel

NUMERIC, CATEGORIES, EMBEDDINGS = "numeric", "categories", "embeddings"
PROBABILITIES = "probabilities"

#: Old enough for every runtime in use, and new enough for every operator below.
_OPSET, _IR_VERSION = 17, 8
#: A model with its weights must fit in one protobuf message of 2 GB.
_MOST_BYTES = 2_000_000_000


def half_graph(bundle: ActiveBundle | PassiveBundle) -> ModelProto:
    """Return the half as a model that takes encoded features.

    Raises:
        ConfigurationError: the model is too large for one file.
    """
    size = sum(each.nbytes for each in bundle.model.state_dict().values())
    if size > _MOST_BYTES:
        raise ConfigurationError(
            f"the model has {size / 1e9:.1f} GB of weights, but an ONNX file can have 2 GB; train "
            "with a higher data.preprocessing.min_count"
        )
    graph = _Graph()
    if isinstance(bundle, PassiveBundle):
        outputs = graph.bottom(bundle.model)
        result, width = graph.named(outputs, EMBEDDINGS), bundle.agreement.training.wire_width
    else:
        outputs = graph.active(bundle)
        result, width = graph.named(outputs, PROBABILITIES), bundle.agreement.training.outputs
    return graph.finish(result, width, f"FLORIST, {bundle.role} half")


class _Graph:
    """An ONNX graph that grows by one layer at a time; values are referred to by their names."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._inputs: dict[str, tuple[int, int]] = {}
        self._numbers = count()

    # --- the halves ---

    def bottom(self, model: BottomModel) -> str:
        deep, wide = self._tower(model)
        if model.share is not None:
            shares = self._linear(deep, model.share)
            return self._add("Add", shares, wide) if wide else shares
        if not model.wide:
            return deep
        return self._add("Concat", deep, wide or self._zeros(deep, model.wide), axis=1)

    def active(self, bundle: ActiveBundle) -> str:
        model, calibration = bundle.model, bundle.calibration
        logits = self._logits(model, bundle.agreement.training.wire_width)
        probabilities = self._probabilities(logits, model.top.output.out_features)
        if calibration.when != "test":
            return probabilities
        a, classes = calibration.mixture.a, bundle.agreement.training.classes
        if model.prior is not None:
            tower, output = model.prior.tower, model.prior.output
            deep, wide = self._tower(tower)
            own_logits = self._linear(deep, output)
            own_logits = self._add("Add", own_logits, wide) if wide else own_logits
            prior = self._probabilities(own_logits, output.out_features)
            offsets = self._add("Mul", prior, self._constant(np.float32(1 - a)))
        else:
            assert isinstance(calibration.mixture, Mixture)
            b = np.array(calibration.mixture.b, np.float32)
            offsets = self._constant(b[1:] if classes == 2 else b)
        truth = self._add("Sub", probabilities, offsets)
        truth = self._add("Div", truth, self._constant(np.float32(a)))
        truth = self._add(
            "Clip", truth, self._constant(np.float32(0)), self._constant(np.float32(1))
        )
        if classes == 2:
            return truth
        axes = self._constant(np.array([1], np.int64))
        return self._add("Div", truth, self._add("ReduceSum", truth, axes, keepdims=1))

    def _logits(self, model: ActiveModel, wire_width: int) -> str:
        """Do what `ActiveModel.forward` does; the result has two dimensions."""
        top: TopModel = model.top
        self._inputs[EMBEDDINGS] = TensorProto.FLOAT, wire_width
        deep, wide = self._split(EMBEDDINGS, wire_width - top.wide, top.wide)
        deep_parts, wide_parts = [deep], [wide]
        if model.tower is not None:
            own_deep, own_wide = self._tower(model.tower)
            deep_parts.append(own_deep)
            wide_parts.append(own_wide)
        if top.sees_shares:
            deep_parts.append(wide)
        seen = [part for part in deep_parts if part]
        if seen:
            inputs = self._add("Concat", *seen, axis=1) if len(seen) > 1 else seen[0]
            logits = self._linear(self._relu_all(inputs, top.layers), top.output)
        else:
            logits = self._constant(_array(top.output.bias)[None])
        for part in wide_parts:
            logits = self._add("Add", logits, part) if part else logits
        return logits

    def _tower(self, tower: FeatureTower) -> tuple[str, str]:
        """Do what `FeatureTower.forward` does; return deep and wide part, "" if all zero."""
        if tower.numeric:
            self._inputs[NUMERIC] = TensorProto.FLOAT, tower.numeric
        if tower.table is None:
            return self._relu_all(NUMERIC, tower.layers), ""
        self._inputs[CATEGORIES] = TensorProto.INT32, len(tower.starts) - 1
        rows = self._add("Cast", CATEGORIES, to=TensorProto.INT64)
        rows = self._add("Add", rows, self._constant(_array(tower.starts[:-1])[None]))
        entries = self._add("Gather", self._constant(_array(tower.table.weight)), rows, axis=0)
        width = tower.table.embedding_dim - tower.wide
        embeddings, weights = self._split(entries, width, tower.wide, axis=2)
        inputs = self._add("Flatten", embeddings, axis=1)
        if tower.numeric:
            inputs = self._add("Concat", inputs, NUMERIC, axis=1)
        axes = self._constant(np.array([1], np.int64))
        wide = self._add("ReduceSum", weights, axes, keepdims=0) if weights else ""
        return self._relu_all(inputs, tower.layers), wide

    # --- layers ---

    def _relu_all(self, values: str, layers: nn.ModuleList) -> str:
        for layer in layers:
            values = self._add("Relu", self._linear(values, layer))
        return values

    def _linear(self, values: str, layer: nn.Module) -> str:
        weight, bias = (self._constant(_array(layer.get_parameter(n))) for n in ("weight", "bias"))
        return self._add("Gemm", values, weight, bias, transB=1)

    def _probabilities(self, logits: str, outputs: int) -> str:
        return (
            self._add("Sigmoid", logits) if outputs == 1 else self._add("Softmax", logits, axis=1)
        )

    def _split(self, values: str, first: int, last: int, axis: int = 1) -> tuple[str, str]:
        """Separate the last columns from the others; "" for a part without columns."""
        if not last:
            return values, ""
        if not first:
            return "", values
        sizes = self._constant(np.array([first, last], np.int64))
        names = self._name(), self._name()
        self._nodes.append(helper.make_node("Split", [values, sizes], [*names], axis=axis))
        return names

    def _zeros(self, values: str, width: int) -> str:
        """Return as many rows of zeros as `values` has rows."""
        mean = self._add("ReduceMean", values, axes=[1], keepdims=1)
        return self._add("Mul", mean, self._constant(np.zeros((1, width), np.float32)))

    # --- nodes ---

    def _add(self, operator: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401
        output = self._name()
        self._nodes.append(helper.make_node(operator, [*inputs], [output], **attributes))
        return output

    def _constant(self, value: npt.NDArray[np.generic] | np.generic) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _name(self) -> str:
        return f"value_{next(self._numbers)}"

    def named(self, values: str, name: str) -> str:
        """Give the result its public name."""
        self._nodes.append(helper.make_node("Identity", [values], [name]))
        return name

    def finish(self, result: str, width: int, title: str) -> ModelProto:
        def described(name: str, kind: int, columns: int) -> ValueInfoProto:
            return helper.make_tensor_value_info(name, kind, ["rows", columns])

        inputs = [described(name, *shape) for name, shape in self._inputs.items()]
        graph = helper.make_graph(
            self._nodes,
            title,
            inputs,
            [described(result, TensorProto.FLOAT, width)],
            initializer=self._constants,
        )
        return helper.make_model(
            graph,
            producer_name="florist",
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
        )


def _array(values: Tensor) -> npt.NDArray[np.generic]:
    array: npt.NDArray[np.generic] = values.detach().cpu().numpy()
    return array
