"""A mutating webhook as other projects have them: adds a sidecar, a volume and an LD_PRELOAD to each Pod, once.

usage: python3 other_webhook.py CERTIFICATE KEY      prints the port that it listens on
"""

import base64
import http.server
import json
import ssl
import sys

LIBRARY = "/opt/profiler/libprofiler.so"


def operations(pod):
    """Operations that do nothing to a Pod that has them already, since a webhook may be called again."""
    spec = pod["spec"]
    if any(container["name"] == "proxy" for container in spec["containers"]):
        return
    if not spec.get("volumes"):
        yield {"op": "add", "path": "/spec/volumes", "value": []}
    yield {"op": "add", "path": "/spec/volumes/-", "value": {"name": "profiler", "emptyDir": {}}}
    for index, container in enumerate(spec["containers"]):
        env = container.get("env") or []
        found = [place for place, variable in enumerate(env) if variable["name"] == "LD_PRELOAD"]
        if found and "value" in env[found[0]]:
            value = f"{env[found[0]]['value']}:{LIBRARY}"
            yield {"op": "replace", "path": f"/spec/containers/{index}/env/{found[0]}/value", "value": value}
            continue
        if not env:
            yield {"op": "add", "path": f"/spec/containers/{index}/env", "value": []}
        yield {"op": "add", "path": f"/spec/containers/{index}/env/-", "value": {"name": "LD_PRELOAD", "value": LIBRARY}}
    yield {"op": "add", "path": "/spec/containers/-", "value": {"name": "proxy", "image": "proxy"}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        patch = list(operations(review["request"]["object"]))
        response = {"uid": review["request"]["uid"], "allowed": True}
        if patch:
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print(f"port {server.server_port}", flush=True)
    server.serve_forever()
