"""Where the chart's pod listens, how it is asked, and who finds it there."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.kubernetes import CI, ROOT, Resource, container, environment, of, pod, render
from oomcast.address import listen_address
from requires import needs

pytestmark = needs("helm")

PORT = 19128


@pytest.mark.parametrize(("host", "address"), [("192.0.2.7", "192.0.2.7"), ("2001:db8::7", "2001:db8::7")])
def test_it_listens_on_the_address_of_the_node(host: str, address: str) -> None:
    assert listen_address(environment(render(), host)["OOMCAST_HTTP__LISTEN"]) == (address, PORT)


def test_it_listens_everywhere_where_that_is_asked_for_or_the_network_is_its_own() -> None:
    for values in ({"listen": "all"}, {"hostNetwork": False}):
        found = environment(render(values))
        assert listen_address(found["OOMCAST_HTTP__LISTEN"]) == ("", PORT)
        assert "HOST_IP" not in found
    own = render({"hostNetwork": False})
    assert pod(own)["hostNetwork"] is False
    assert "dnsPolicy" not in pod(own)
    assert "hostPort" not in container(own)["ports"][0]
    assert pod(render())["dnsPolicy"] == "ClusterFirstWithHostNet"


@pytest.mark.parametrize("values", CI, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_the_port_is_the_same_everywhere(values: Path) -> None:
    resources = render(values)
    port = (yaml.safe_load(values.read_text()) or {}).get("port", PORT)
    (found,) = container(resources)["ports"]
    assert (found["name"], found["containerPort"], found.get("hostPort", port)) == ("metrics", port, port)
    assert listen_address(environment(resources)["OOMCAST_HTTP__LISTEN"])[1] == port
    for probe in ("livenessProbe", "readinessProbe"):
        handler = container(resources)[probe].get("httpGet") or container(resources)[probe]["tcpSocket"]
        assert handler["port"] == "metrics"
    for one in resources:
        if one["kind"] == "PodMonitor":
            assert [endpoint["port"] for endpoint in one["spec"]["podMetricsEndpoints"]] == ["metrics"]
        if one["kind"] == "NetworkPolicy":
            assert one["spec"]["ingress"][0]["ports"] == [{"port": "metrics", "protocol": "TCP"}]


def test_probes_ask_as_far_as_the_kubelet_can() -> None:
    def probes(web: dict[str, Any]) -> list[Any]:
        found = container(render({"web": web}))
        return [found[name].get("httpGet", "port") for name in ("livenessProbe", "readinessProbe")]

    def asked(scheme: str) -> list[Any]:
        return [{"path": path, "port": "metrics", "scheme": scheme} for path in ("/-/healthy", "/-/ready")]

    tls = {"cert_file": "tls.crt", "key_file": "tls.key"}
    assert probes({}) == asked("HTTP")
    assert probes({"tlsSecret": "a"}) == asked("HTTPS")
    assert probes({"config": {"tls_server_config": tls}}) == asked("HTTPS")
    assert probes({"config": {"tls_server_config": tls | {"client_auth_type": "VerifyClientCertIfGiven"}}}) == asked(
        "HTTPS"
    )
    # These the kubelet does not have.
    assert (
        probes({"config": {"tls_server_config": tls | {"client_auth_type": "RequireAndVerifyClientCert"}}})
        == ["port"] * 2
    )
    assert probes({"config": {"basic_auth_users": {"a": "b"}}}) == ["port", "port"]
    assert probes({"config": {"rate_limit": {"interval": "1s", "burst": 5}}}) == ["port", "port"]
    assert probes({"existingSecret": "a"}) == ["port", "port"]


def test_shipped_scrape_configurations_find_the_pods() -> None:
    template: Resource = of(render(), "DaemonSet")["spec"]["template"]
    labels, port = template["metadata"]["labels"], template["spec"]["containers"][0]["ports"][0]["name"]
    job = yaml.safe_load((ROOT / "deploy" / "prometheus" / "kubernetes.yml").read_text())["scrape_configs"][0]
    (selector,) = job["kubernetes_sd_configs"][0]["selectors"]
    key, _, value = selector["label"].partition("=")
    assert labels[key] == value
    keep = job["relabel_configs"][0]
    assert keep["action"] == "keep"
    assert keep["regex"] == f"{value};{port}"
    monitor = yaml.safe_load((ROOT / "deploy" / "prometheus" / "podmonitor.yaml").read_text())["spec"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["podMetricsEndpoints"][0]["port"] == port
