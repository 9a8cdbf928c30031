"""The Kubernetes manifests: valid, confined, and restarted only if that can help."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from florist.cli.party import app as party_app
from florist.cli.tool import app as tool_app
from florist.common.core.errors import restart_helps
from tools.errors_page import error_types

FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
#: The oldest release that the documentation names, and the newest one that is known.
RELEASES = ("1.31", kubernetes_validate.latest_version())


def documents(name: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))]


def found(name: str, kind: str) -> dict[str, Any]:
    (document,) = (each for each in documents(name) if each["kind"] == kind)
    return document


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = documents(name)[0]["spec"]["template"]["spec"]
    return spec


def party(name: str) -> dict[str, Any]:
    (container,) = pod(name)["containers"]
    assert isinstance(container, dict)
    return container


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_kubernetes_accepts_every_document(path: Path, release: str) -> None:
    for document in documents(path.name):
        kubernetes_validate.validate(document, release, strict=True)
        assert document["metadata"].get("namespace") == (
            None if document["kind"] == "Namespace" else "florist"
        )
        assert document["kind"] != "Secret", "secrets are not in the repository"


def test_the_schemas_are_checked() -> None:
    job = copy.deepcopy(documents("run.yaml")[0])
    job["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, RELEASES[0], strict=True)


def test_a_run_is_restarted_only_if_that_helps() -> None:
    job = found("run.yaml", "Job")["spec"]
    final, disruption = job["podFailurePolicy"]["rules"]
    codes = {kind.exit_code for kind, _ in error_types()}
    assert final["action"] == "FailJob"
    assert final["onExitCodes"]["containerName"] == party("run.yaml")["name"]
    assert final["onExitCodes"]["operator"] == "In"
    listed = set(final["onExitCodes"]["values"])
    assert listed == {1} | {code for code in codes if not restart_helps(code)}
    assert disruption["action"] == "Ignore"
    assert pod("run.yaml")["restartPolicy"] == "Never"
    assert job["podReplacementPolicy"] == "Failed"
    assert found("serve.yaml", "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_running_and_serving_differ_in_the_stage_only() -> None:
    run, serve = pod("run.yaml"), pod("serve.yaml")
    del run["restartPolicy"]
    ready = serve["containers"][0].pop("readinessProbe")
    assert ready["exec"]["command"][:3] == ["florist", "health", "--ready"]
    for spec, stage in ((run, "all"), (serve, "serve")):
        command = spec["containers"][0]["command"]
        assert command[command.index("--stage") + 1] == stage
        command[command.index("--stage") + 1] = "any"
    assert run == serve


@pytest.mark.parametrize("name", ["run.yaml", "serve.yaml"])
def test_pods_are_confined(name: str) -> None:
    spec = pod(name)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"].keys() == {"requests", "limits"}
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    writable = [m["name"] for m in party(name)["volumeMounts"] if not m.get("readOnly")]
    assert writable == ["runs", "temporary"]


@pytest.mark.parametrize("name", ["run.yaml", "serve.yaml"])
def test_commands_exist(name: str) -> None:
    """The programs accept the options, with the role that the configuration map gives."""
    container = party(name)
    program, *arguments = container["command"]
    assert program == "florist-party"
    assert [each["name"] for each in container["env"]] == ["FLORIST_ROLE"]
    arguments = [each.replace("$(FLORIST_ROLE)", "passive") for each in arguments]
    parsed = get_command(party_app).make_context(program, arguments)
    assert str(parsed.params["config"]) == "/florist/party.yml"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert "/florist/party.yml" in mounts
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe in container:
            program, command, *arguments = container[probe]["exec"]["command"]
            assert program == "florist"
            health: Any = get_command(tool_app)
            health.commands[command].make_context(command, arguments)
            assert container[probe]["timeoutSeconds"] > 5, "longer than the command waits"


def test_the_key_becomes_readable_by_its_owner_only(tmp_path: Path) -> None:
    """The command of the init container, as it is, with other folders."""
    (container,) = pod("run.yaml")["initContainers"]
    secret, target = tmp_path / "secret", tmp_path / "certificates"
    (secret / "..data").mkdir(parents=True)
    target.mkdir()
    (secret / "..data" / "party.key").write_text("key")
    (secret / "..data" / "party.key").chmod(0o440)
    (secret / "party.key").symlink_to("..data/party.key")
    shell, option, script = container["command"]
    script = script.replace("/florist/certificates", str(target)).replace("/secret", str(secret), 1)
    for _ in range(2):  # also if the pod is set up again
        subprocess.run([shell, option, script], check=True)
        (copied,) = target.iterdir()
        assert (copied.name, copied.read_text()) == ("party.key", "key")
        assert copied.stat().st_mode & 0o777 == 0o400


def test_only_the_peer_and_own_services_reach_a_party() -> None:
    ports = {each["name"]: each["containerPort"] for each in party("run.yaml")["ports"]}
    active = found("network-active.yaml", "NetworkPolicy")["spec"]
    passive = found("network-passive.yaml", "NetworkPolicy")["spec"]
    for policy in (active, passive):
        assert policy["podSelector"] == {}, "all pods of the namespace"
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        assert all(rule["from"] and rule["ports"] for rule in policy["ingress"])
        assert all(rule["to"] and rule["ports"] for rule in policy["egress"])
    assert active["egress"] == []
    opened = [rule["ports"][0]["port"] for rule in active["ingress"]]
    assert opened == [ports["peer"], ports["status"]]
    assert [rule["ports"][0]["port"] for rule in passive["ingress"]] == [
        ports["http"],
        ports["status"],
    ]
    assert passive["egress"][0]["ports"] == [{"protocol": "TCP", "port": ports["peer"]}]
    service = found("network-active.yaml", "Service")["spec"]
    (peer,) = active["ingress"][0]["from"]
    assert service["loadBalancerSourceRanges"] == [peer["ipBlock"]["cidr"]]
    labels = documents("run.yaml")[0]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
