"""One party's configuration: typed, checked as a whole, every problem named with its key."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic import field_validator as check_field

from florist.common.core.errors import ConfigurationError
from florist.common.core.units import MemorySize, size_in_bytes
from florist.common.settings.agreement import Agreement, Section
from florist.common.settings.formats import FORMATS, Format, FormatName
from florist.common.settings.renamed_keys import apply_renames
from florist.common.settings.training import AuditSettings, Model, Optimiser, Training

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

S = TypeVar("S", bound=Section)

EngineName = Literal["auto", "ifma", "avx2", "cryptography", "gmpy2"]
ExecutorName = Literal["local", "ray"]
Scaling = Literal["linear", "log"]

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# Underscores are no part of host names, but of the service names that container tools resolve.
_HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def split_address(address: str) -> tuple[str, int]:
    """Host (an IPv6 address without its brackets) and port of `host:port`.

    Raises:
        ValueError: says what is wrong with it.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ValueError("must be host:port, with a port from 1 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ip(host, ipaddress.IPv6Address):
            raise ValueError("must have an IPv6 address between the brackets")
        return host, int(port)
    if ":" in host:
        raise ValueError("must have its IPv6 address in brackets and quotes, as '[::1]:7000'")
    labels = host.removesuffix(".").split(".")
    if not all(_HOST_LABEL.fullmatch(label) for label in labels) or len(host) > 253:
        raise ValueError("must be host:port, with a host name or an IP address")
    if labels[-1].isdigit() and not _is_ip(host, ipaddress.IPv4Address):
        raise ValueError("must have four numbers up to 255 in its IPv4 address")
    return host, int(port)


def _is_ip(host: str, kind: type[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> bool:
    try:
        kind(host)
    except ValueError:
        return False
    return True


def _check_address(address: str) -> str:
    split_address(address)
    return address


def _check_ray_address(address: str) -> str:
    if address not in ("auto", "local"):
        try:
            split_address(address)
        except ValueError as error:
            raise ValueError(f"{error}; or be auto, or local") from None
    return address


def _check_name(name: str) -> str:
    if not _DNS_LABEL.fullmatch(name):
        raise ValueError(
            "must be 1 to 63 lower-case letters, digits and hyphens, with no hyphen at either end"
        )
    return name


def _check_delimiter(delimiter: str) -> str:
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ValueError('must be one ASCII character, such as ";" or "\\t", and not a quote')
    return delimiter


def _check_columns(columns: object) -> object:
    """`auto`, or names as a tuple."""
    if columns == "auto":
        return columns
    if not isinstance(columns, list | tuple):
        raise ValueError("must be `auto` or a list of columns, such as [age, city]")  # noqa: TRY004
    wrong = [name for name in columns if not isinstance(name, str) or not name]
    if wrong:
        raise ValueError(f"must list names of columns, not {_short(wrong[0])}; put it in quotes")
    return tuple(columns)


def _resolve(path: Path, info: ValidationInfo) -> Path:
    # A key pasted in place of its path would otherwise turn up in later messages.
    if any(character < " " for character in str(path)):
        raise ValueError("must be a path on one line")
    folder = (info.context or {}).get("folder")
    return path if folder is None else Path(folder) / path


Name = Annotated[str, AfterValidator(_check_name)]
Address = Annotated[str, AfterValidator(_check_address)]
RayAddress = Annotated[str, AfterValidator(_check_ray_address)]
Delimiter = Annotated[str, AfterValidator(_check_delimiter)]
Columns = Annotated[Literal["auto"] | tuple[str, ...], BeforeValidator(_check_columns)]
FilePath = Annotated[Path, Field(strict=False), AfterValidator(_resolve)]
Seconds = Annotated[float, Field(gt=0)]


class Party(Section):
    """Who the two are."""

    name: Name = Field(
        description="Our name, and the common name in our certificate: lower-case letters, digits "
        "and hyphens, 63 at most."
    )
    peer: Name = Field(
        description="The peer's name: no other certificate is accepted. Different from ours."
    )

    @check_field("peer")
    @classmethod
    def _differs(cls, peer: str, info: ValidationInfo) -> str:
        if peer == info.data.get("name"):
            raise ValueError("must differ from party.name")
        return peer


class Tls(Section):
    """Files of mutual TLS, PEM."""

    authority: FilePath = Field(
        description="File (PEM) with the certificate of the authority that signed the peer's."
    )
    certificate: FilePath = Field(description="File (PEM) with our certificate.")
    key: FilePath = Field(
        description="File (PEM) with the private key of our certificate; readable by us alone."
    )


class Network(Section):
    """Where the parties meet."""

    address: Address = Field(
        description="host:port where the active party listens and which the passive party dials. "
        "An IPv6 address stands in brackets, and all of it in quotes."
    )
    tls: Tls | None = Field(
        default=None,
        description="Files for mutual TLS: authority, certificate and key. Without them a party "
        "starts only when its command line allows plain text.",
    )


class Table(Section):
    """One table of ours, its format's settings filled in."""

    path: FilePath = Field(
        description="File with one row per person: .csv, .tsv or .txt, these with .gz, or "
        ".parquet. Text is UTF-8, with a header unless the format has none. Or a folder of such "
        "files, all text or all Parquet and with the same columns: they are read one after the "
        "other, in the order of their names, without those that begin with a dot or an underscore."
    )
    format: FormatName = Field(
        default="plain",
        description="What kind of file it is. plain: the keys below tell. criteo and avazu: a file "
        "as Kaggle published it; its columns are known, and the keys below can be left out.",
    )
    id_column: str = Field(
        min_length=1,
        description="Column that holds the IDs: each there, and there once. Of criteo it is "
        "row_number, unless an ID was put first in each row: then any other name.",
    )
    delimiter: Delimiter = Field(
        default=",",
        description='Character between the values of a CSV row; for tabs, "\\t" in quotes.',
    )
    label: str | None = Field(
        default=None,
        min_length=1,
        description="Column that holds the labels, for the active party; null: none, or the "
        "format's own.",
    )
    numeric: Columns = Field(
        default="auto",
        description="Features that are numbers, as a list of columns. auto: all columns of numbers "
        "but IDs and labels; in a CSV file, those in which all values are numbers, empty or NA.",
    )
    categorical: Columns = Field(
        default="auto",
        description="Features that are categories, as a list of columns. auto: all columns that "
        "are not IDs, labels or numeric. Both lists empty: no features.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: object) -> object:
        """What the format settles and the file leaves open."""
        if not isinstance(values, dict) or not (known := _known_format(values.get("format"))):
            return values
        left_open = {"label": None, "numeric": "auto", "categorical": "auto"}
        given = {
            key: value
            for key, value in values.items()
            if key not in left_open or value != left_open[key]
        }
        return known.settings() | given

    @check_field("id_column")
    @classmethod
    def _is_an_id(cls, column: str, info: ValidationInfo) -> str:
        known = _known_format(info.data.get("format"))
        if known and not known.allows_id(column):
            raise ValueError(f"must in this format be {known.id_column!r}, or left out")
        return column

    @check_field("delimiter", "label")
    @classmethod
    def _fits_format(cls, value: str | None, info: ValidationInfo) -> str | None:
        known = _known_format(info.data.get("format"))
        if known and value != (settled := known.settings()[str(info.field_name)]):
            raise ValueError(f"must in this format be {settled!r}, or left out")
        return value

    @check_field("label")
    @classmethod
    def _is_no_id(cls, label: str | None, info: ValidationInfo) -> str | None:
        if label is not None and label == info.data.get("id_column"):
            raise ValueError("must differ from id_column")
        return label

    @check_field("numeric", "categorical")
    @classmethod
    def _are_features(cls, columns: Columns, info: ValidationInfo) -> Columns:
        if columns == "auto":
            return columns
        known = _known_format(info.data.get("format"))
        numeric = info.data.get("numeric") if info.field_name == "categorical" else ()
        for place, column in enumerate(columns):
            if known and column not in known.settings()[str(info.field_name)]:
                raise ValueError(f"{_short(column)} is no such column of this format; take it out")
            if column in columns[:place]:
                raise ValueError(f"names {_short(column)} twice; keep one")
            if column in (info.data.get("id_column"), info.data.get("label")):
                raise ValueError(f"{_short(column)} is the ID or the label; take it out")
            if numeric and numeric != "auto" and column in numeric:
                raise ValueError(f"{_short(column)} is under numeric too; keep one")
        return columns


class HeldOutTable(Section):
    """Where the rows for tests are; their columns are those of the training table."""

    path: FilePath = Field(
        description="File with the same columns as the training table: the IDs, the label and the "
        "features are found by the same names."
    )
    format: Literal["same", FormatName] = Field(
        default="same",
        description="What kind of file it is. same: as the training table; or plain, criteo, "
        "avazu.",
    )
    delimiter: str = Field(
        default="same",
        description="Character between the values of a CSV row. same: as in the training table.",
    )

    @check_field("delimiter")
    @classmethod
    def _is_a_delimiter(cls, delimiter: str, info: ValidationInfo) -> str:
        if delimiter == "same":
            return delimiter
        known = _known_format(info.data.get("format"))
        if known and delimiter != known.delimiter:
            raise ValueError(f"must in this format be {known.delimiter!r}, or left out")
        return _check_delimiter(delimiter)


class PreprocessingSettings(Section):
    """How features become what a model takes; learned from the training table."""

    min_count: int = Field(
        default=1,
        ge=1,
        description="Categories in fewer training rows than this count as one and the same, "
        "together with those in none. 10 suits large tables.",
    )
    scaling: Scaling = Field(
        default="linear",
        description="How numbers get between 0 and 1. linear: from the least to the greatest in "
        "training. log: the same, after sign(x) * log(1 + abs(x)), for long tails.",
    )


class Data(Section):
    """Our tables."""

    train: Table = Field(description="The table to align and to train on.")
    test: HeldOutTable | None = Field(
        default=None, description="The table of people held out, to measure the model with."
    )
    evaluation: HeldOutTable | None = Field(
        default=None,
        description="The table of our people to evaluate the finished model on, none of whom is in "
        "the training table. They need not be the peer's people too: neither learns who is.",
    )
    preprocessing: PreprocessingSettings = Field(
        default=PreprocessingSettings(),
        description="How features become what a model takes; learned from the training table.",
    )

    @property
    def test_table(self) -> Table | None:
        """The test table, described in full."""
        return None if self.test is None else self._in_full(self.test)

    @property
    def evaluation_table(self) -> Table | None:
        """The evaluation table, described in full."""
        return None if self.evaluation is None else self._in_full(self.evaluation)

    def _in_full(self, table: HeldOutTable) -> Table:
        changes: dict[str, object] = {"path": table.path}
        if table.format not in ("same", self.train.format):
            known = _known_format(table.format)
            changes |= {"format": table.format, "delimiter": known.delimiter if known else ","}
        if table.delimiter != "same":
            changes["delimiter"] = table.delimiter
        return self.train.model_copy(update=changes)


def _known_format(name: object) -> Format | None:
    return FORMATS.get(name) if isinstance(name, str) else None


class AlignmentSettings(Section):
    """How we take part in the private set union."""

    # Not in the repr: a log that held it would tell the true size.
    dummies: int = Field(
        default=0,
        ge=0,
        repr=False,
        description="Number of random IDs added to ours, to hide the true sizes of our set and of "
        "the overlap. Each costs as much as an ID.",
    )
    memory_limit: MemorySize = Field(
        default="2GB",
        description="Memory for this party while it aligns, all included, whatever the sizes: the "
        "program (about 130 MB) too. What does not fit is sorted on disk, in run_directory. A "
        "number with MB, GB, MiB or GiB, 256MB at least.",
    )

    @property
    def memory_bytes(self) -> int:
        return size_in_bytes(self.memory_limit)


class ComputeSettings(Section):
    """What this machine does the work with."""

    engine: EngineName = Field(
        default="auto",
        description="Implementation of the group's arithmetic; all give the same results. auto "
        "takes the fastest there is here; ifma, avx2, cryptography and gmpy2 name one, "
        "which must fit the group and this machine.",
    )
    threads: int = Field(
        default=0, ge=0, description="Number of cores to work with; 0 stands for all of them."
    )
    executor: ExecutorName = Field(
        default="local",
        description="Where alignment hashes, raises and sorts: local, on this machine; ray, on our "
        "own Ray cluster, to which everything goes sealed. ray needs `pip install florist[ray]` "
        "here, and this release of FLORIST on every node.",
    )
    ray_address: RayAddress = Field(
        default="auto",
        description="The Ray cluster: auto, the one that this machine is part of; host:port of its "
        "head; or local, one for this run, on this machine alone.",
    )
    ray_workers: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="Worker processes on the Ray cluster, with one core each; 0 stands for as many "
        "as it has cores.",
    )
    ray_branch_port: int = Field(
        default=0,
        ge=0,
        le=65_000,
        description="With agreement.branches above 1, at the active party: branch k listens at "
        "this port plus k, on whichever node of the Ray cluster it runs, and the peer's nodes must "
        "reach it there. 0 takes any free ports.",
    )


class Timeouts(Section):
    """How long to wait for the peer."""

    connect: Seconds = Field(
        default=600.0, description="Seconds to wait for the peer to come up, once we are ready."
    )
    silence: float = Field(
        default=10.0,
        ge=3,
        le=13,
        description="Seconds without a sign of life after which the peer counts as lost, 3 to 13.",
    )
    stall: Seconds = Field(
        default=1800.0, description="Seconds that a peer may be alive and make no progress."
    )
    outage: float = Field(
        default=1800.0,
        ge=0,
        description="Seconds that the peer may be away once a run has begun: the line is cut, or "
        "the peer restarts. The run then goes on by itself. 0 ends the run at the first loss.",
    )


class ServingLimits(Section):
    """How much the peer may ask: predictions can be used to copy a model, or to probe labels."""

    rows_per_request: int = Field(
        default=4096, ge=1, description="Rows that one request may have; more are refused."
    )
    rows_per_minute: int = Field(
        default=600_000,
        ge=1,
        description="Rows that the peer may ask for in a minute. Beyond it single requests are "
        "refused, and streams wait.",
    )
    calls: int = Field(
        default=64,
        ge=1,
        le=1024,
        description="Single requests of the peer under way at once; more are refused.",
    )
    streams: int = Field(
        default=4,
        ge=1,
        le=256,
        description="Streams of requests of the peer under way at once; more are refused.",
    )


class Batching(Section):
    """How requests that come at the same time are computed together."""

    rows: int = Field(
        default=8192, ge=1, description="Rows that are computed together, from several requests."
    )
    delay: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Seconds that requests which had to wait for the model wait on for others to "
        "join them. A request that finds the model idle never waits.",
    )


class Http(Section):
    """The service for the organisation's own applications, at the passive party."""

    address: Address = Field(
        default="127.0.0.1:8088",
        description="host:port where our own applications get predictions; 127.0.0.1 is this "
        "machine alone. It has no TLS of its own: elsewhere, put it behind something that has.",
    )
    token_file: FilePath | None = Field(
        default=None,
        description="File with the token that applications must show, readable by us alone; "
        "made when it is not there. null: serving/http-token in run_directory.",
    )
    max_rows: int = Field(default=1024, ge=1, description="Rows of one request.")
    max_bytes: int = Field(
        default=4 << 20, ge=1024, description="Length of a request's body, in bytes."
    )


class Serving(Section):
    """How predictions are given (active party) and got (passive party)."""

    address: Address | None = Field(
        default=None,
        description="host:port where the active party gives predictions and which the passive "
        "party dials. null: network.address.",
    )
    threads: int = Field(
        default=1,
        ge=0,
        description="Number of cores for a model's arithmetic; 0 stands for all of them. One is "
        "best for small requests.",
    )
    limits: ServingLimits = Field(
        default=ServingLimits(), description="How much the peer may ask, at the active party."
    )
    batching: Batching = Field(
        default=Batching(),
        description="How requests at the same time are computed together, at the active party.",
    )
    idle: Seconds = Field(
        default=60.0,
        description="Seconds without progress after which the active party ends a stream: its "
        "peer neither sends nor reads.",
    )
    answer: Seconds = Field(
        default=30.0, description="Seconds that the passive party waits for an answer."
    )
    drain: Seconds = Field(
        default=20.0,
        description="Seconds that requests under way have to finish when a party is stopped.",
    )
    http: Http = Field(
        default=Http(),
        description="The service for our own applications, at the passive party.",
    )


class Observability(Section):
    """Where our own operators see how the run goes."""

    address: Address | None = Field(
        default=None,
        description="host:port of a status page at `/`, and of `/metrics` for Prometheus, "
        "`/healthz` and `/readyz`, such as 127.0.0.1:9464, which is for this machine alone; null: "
        "none. It tells nobody who is shared, but whoever reaches it reads the log: no password "
        "and no TLS of its own.",
    )


class PartyConfig(Section):
    """Everything that one party's configuration file contains."""

    renamed_keys: ClassVar[Mapping[str, str]] = {"patience": "timeouts"}

    party: Party = Field(description="Who the two parties are.")
    network: Network = Field(description="Where they meet, and how they know each other.")
    data: Data = Field(description="Our tables.")
    run_directory: FilePath = Field(
        description="Folder for results and checkpoints; made when it is not there."
    )
    alignment: AlignmentSettings = Field(
        default=AlignmentSettings(), description="How we take part in the private set union."
    )
    compute: ComputeSettings = Field(
        default=ComputeSettings(), description="What this machine does the work with."
    )
    model: Model = Field(default=Model(), description="Our half of the model.")
    optimiser: Optimiser = Field(default=Optimiser(), description="How our half learns.")
    training: Training = Field(
        default=Training(), description="Where and how our half of the training runs."
    )
    audit: AuditSettings = Field(
        default=AuditSettings(),
        description="How we watch what we give away: while it trains, a party attacks what it "
        "sends, as its peer could.",
    )
    timeouts: Timeouts = Field(default=Timeouts(), description="How long to wait for the peer.")
    serving: Serving = Field(
        default=Serving(), description="How predictions are given, and got, once a model is there."
    )
    observability: Observability = Field(
        default=Observability(), description="Where our own operators see how the run goes."
    )
    agreement: Agreement = Field(
        default=Agreement(),
        description="What both parties must have alike. They compare it before anything else and "
        "stop at a difference.",
    )

    @check_field("agreement")
    @classmethod
    def _can_have_branches(cls, agreement: Agreement, info: ValidationInfo) -> Agreement:
        compute = info.data.get("compute")
        if agreement.branches > 1 and compute is not None and compute.executor != "ray":
            raise ValueError("branches above 1 run on a Ray cluster: set compute.executor to ray")
        return agreement


def load_config(path: Path) -> PartyConfig:
    """Read and check a configuration file; its relative paths start from its folder.

    Raises:
        ConfigurationError: names the file and lists every problem with its key and the fix.
    """
    return load_section(path, PartyConfig, if_absent="`florist init` writes a commented one")


def load_section(path: Path, kind: type[S], *, if_absent: str = "name another") -> S:
    """As `load_config`, of a file with the keys of `kind`.

    Raises:
        ConfigurationError: as `load_config`.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file; {if_absent}") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path}: is a folder; name the file in it") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{path}: line {line} is not UTF-8; save the file with that encoding"
        ) from None
    return parse_section(text, kind, folder=path.absolute().parent, source=str(path))


def parse_config(text: str, *, folder: Path, source: str) -> PartyConfig:
    """As `load_config`, from a text; messages call it `source`.

    Raises:
        ConfigurationError: as `load_config`.
    """
    return parse_section(text, PartyConfig, folder=folder, source=source)


def parse_section(text: str, kind: type[S], *, folder: Path, source: str) -> S:
    """As `load_section`, from a text; messages call it `source`.

    Raises:
        ConfigurationError: as `load_config`.
    """
    values = _parse_yaml(text, source)
    if not isinstance(values, dict):
        found = "is empty" if values is None else "holds no keys at its top level"
        raise ConfigurationError(f"{source}: {found}; it must have {_listed(kind.model_fields)}")
    values = apply_renames(values, kind.renamed_keys, source)
    try:
        return kind.model_validate(values, context={"folder": folder})
    except ValidationError as error:
        known = {key.path: key for key in describe_keys(kind)}
        problems = [_problem(details, known) for details in error.errors(include_url=False)]
    if len(problems) == 1:
        raise ConfigurationError(f"{source}: {problems[0]}")
    raise ConfigurationError("\n  ".join([f"{source}: {len(problems)} problems:", *problems]))


# --- the keys, for messages, the reference page and the generated files ---


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the configuration, or a section of keys."""

    path: tuple[str, ...]
    meaning: str
    #: What it is when the file does not say; None without meaning where `required`.
    default: object
    required: bool
    #: The values allowed, where they can be listed.
    choices: tuple[str, ...]
    is_section: bool

    @property
    def dotted(self) -> str:
        return ".".join(self.path)

    @property
    def optional(self) -> bool:
        """Whether it may be left out and is then not there at all."""
        return not self.required and self.default is None

    @property
    def agreed(self) -> bool:
        """Whether both parties must have the same value."""
        return self.path[0] == "agreement"


def describe_keys(
    model: type[BaseModel] = PartyConfig, above: tuple[str, ...] = ()
) -> Iterator[Key]:
    """Every section and key, in the order of the file; a section comes before its keys."""
    for name, field in model.model_fields.items():
        path = (*above, name)
        section = _section(field)
        yield Key(
            path=path,
            meaning=field.description or "",
            default=None if field.is_required() else field.default,
            required=field.is_required(),
            choices=get_args(field.annotation) if get_origin(field.annotation) is Literal else (),
            is_section=section is not None,
        )
        if section is not None:
            yield from describe_keys(section, path)


def _section(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that holds keys, also when it is optional."""
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


# --- what is wrong, for the operator ---


def _problem(  # noqa: PLR0911 - one per kind of problem
    error: ErrorDetails, known: dict[tuple[str, ...], Key]
) -> str:
    """One line: the key, what is wrong with it, the fix."""
    value = error["input"]
    where = ".".join(part if part.isprintable() else ascii(part) for part in map(str, error["loc"]))
    # Entries of a list have the same keys, whatever their number.
    path = tuple(part for part in error["loc"] if isinstance(part, str))
    match error["type"]:
        case "extra_forbidden":
            return f"{where}: unknown key; {_suggestion(path, list(known))}"
        case "missing":
            return f"{where}: missing; add it. {known[path].meaning}"
        case "invalid_key":
            return f"{where}: a key must be text; put it in quotes"
        case "model_type":
            keys = _listed(key[-1] for key in known if key[:-1] == path)
            return f"{where}: {'is empty' if value is None else 'has no keys'}; give it {keys}"
        case "literal_error":
            return f"{where}: must be one of {_listed(known[path].choices)}, {_not(value)}"
        case "string_type" | "path_type":
            fix = "" if value is None else "; put it in quotes"
            return f"{where}: must be text, {_not(value)}{fix}"
        case "int_type":
            return f"{where}: must be a whole number without quotes, {_not(value)}"
        case "float_type":
            return f"{where}: must be a number without quotes, {_not(value)}"
        case "value_error":
            found = "" if isinstance(value, list) else f", {_not(value)}"
            return f"{where}: {error['ctx']['error']}{found}"
        case _:
            must = re.sub(r"^\w+ should", "must", error["msg"])
            return f"{where}: {must}, {_not(value)}"


def _suggestion(path: tuple[str, ...], known: list[tuple[str, ...]]) -> str:
    siblings = [key[-1] for key in known if key[:-1] == path[:-1]]
    if near := difflib.get_close_matches(path[-1], siblings, n=1):
        return f"did you mean `{near[0]}`?"
    if elsewhere := [".".join(key) for key in known if key[-1] == path[-1]]:
        return f"it belongs at `{elsewhere[0]}`"
    return f"known here: {_listed(siblings)}"


def _not(value: object) -> str:
    """What was found instead, short and printable; of a pasted key or certificate, nothing."""
    if isinstance(value, dict | list):
        return "not a group of keys" if isinstance(value, dict) else "not a list"
    if isinstance(value, str) and any(character < " " for character in value):
        return "not this one with line breaks or control characters"
    return "not empty" if value is None else f"not {_short(value)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# --- YAML ---


class _Loader(yaml.SafeLoader):
    """The safe loader; it also refuses a key given twice, of which YAML would keep the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - as inherited
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {_short(key.value)} is there twice; keep one",
                    problem_mark=key.start_mark,
                )
            seen.add((key.tag, key.value))
        return node


def _parse_yaml(text: str, source: str) -> object:
    try:
        return _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigurationError(f"{source}: {where}{error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigurationError(f"{source}: line {line}: a control character; remove it") from None
    except RecursionError:
        raise ConfigurationError(f"{source}: is nested too deeply to be a configuration") from None
    except ValueError as error:
        # For example the date 2026-02-30, which YAML tries to read as one.
        raise ConfigurationError(
            f"{source}: a value cannot be read ({error}); put text in quotes"
        ) from None
