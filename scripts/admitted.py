"""Reads rendered manifests and the files of deploy/gateways together: whether each gateway reaches Sluicegate.

    scripts/admitted.py MANIFEST GATEWAY...

A gateway asks HOST:PORT of Sluicegate's Service. Its proxies run in the namespace of its EnvoyFilter, or in that of
Envoy Gateway. The NetworkPolicy of the manifest has to admit that namespace to that port.
"""

import re
import sys

import yaml

# Envoy Gateway runs the proxies of all its gateways in its own namespace, unless its deploy type is GatewayNamespace.
ENVOY_GATEWAY = "envoy-gateway-system"
HOST = re.compile(r"^(?P<service>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)\.svc\.cluster\.local$")


def addresses(node):
    """All socket addresses below `node`."""
    if isinstance(node, dict):
        if "socket_address" in node:
            yield node["socket_address"]
        for child in node.values():
            yield from addresses(child)
    elif isinstance(node, list):
        for child in node:
            yield from addresses(child)


def proxies_of(gateway):
    """The namespace in which the proxies of a gateway's manifest run."""
    if gateway["kind"] == "EnvoyFilter":
        return gateway["metadata"]["namespace"]
    if gateway["kind"] == "EnvoyPatchPolicy":
        return ENVOY_GATEWAY
    sys.exit(f"admitted: unknown kind of gateway `{gateway['kind']}`")


def selects(peer, namespace, own):
    """Whether `peer` of a NetworkPolicy of the namespace `own` selects all pods of `namespace`."""
    if peer.get("podSelector"):
        return False
    if "namespaceSelector" not in peer:
        return namespace == own
    selector = peer["namespaceSelector"]
    name = "kubernetes.io/metadata.name"
    labels = selector.get("matchLabels", {})
    if any(labels[label] != namespace for label in labels if label == name) or set(labels) - {name}:
        return False
    for expression in selector.get("matchExpressions", []):
        if (expression["key"], expression["operator"]) != (name, "In") or namespace not in expression["values"]:
            return False
    return True


def main(manifest, gateways):
    documents = [document for document in yaml.safe_load_all(open(manifest)) if document]
    policies = [document for document in documents if document["kind"] == "NetworkPolicy"]
    services = {document["metadata"]["name"]: document for document in documents if document["kind"] == "Service"}
    for path in gateways:
        gateway = yaml.safe_load(open(path))
        asked = list(addresses(gateway))
        if not asked:
            sys.exit(f"admitted: {path} asks nobody")
        for address in asked:
            host = HOST.match(address["address"])
            if not host:
                sys.exit(f"admitted: {path} asks `{address['address']}`, expected a Service of the cluster")
            service = services.get(host["service"]) or next(iter(services.values()))
            ports = {port["port"]: port["targetPort"] for port in service["spec"]["ports"]}
            port = ports.get(address["port_value"])
            if port is None:
                sys.exit(f"admitted: {path} asks port {address['port_value']}, which the Service does not have")
            namespace, own = proxies_of(gateway), host["namespace"]
            rules = [rule for policy in policies for rule in policy["spec"]["ingress"]]
            if not any(
                any(selects(peer, namespace, own) for peer in rule["from"])
                and any(given["port"] == port for given in rule["ports"])
                for rule in rules
            ):
                sys.exit(f"admitted: {path} asks from `{namespace}`, which the NetworkPolicy of {manifest} shuts out of port {port}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
