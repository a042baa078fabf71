"""Flask, and whatever has no event loop: a client of connect_sync, also below a server that forks.

FLOVYN_URL=sqlite:agents.db gunicorn --preload --workers 2 flask_app:app

Each process opens its client on the first request, and none before it forks. The agents run in a worker of its own
(worker.py).
"""

from __future__ import annotations

import functools
import os
from typing import Any

import flovyn
from agents import researcher
from flask import Flask, Response, request

app = Flask(__name__)


@functools.cache
def client() -> flovyn.SyncClient:
    return flovyn.connect_sync()


@app.errorhandler(flovyn.ExecutionNotFound)
def not_found(error: flovyn.ExecutionNotFound) -> tuple[dict[str, str], int]:
    return {"code": error.code, "message": str(error)}, 404


@app.post("/runs/<id>")
def start(id: str) -> tuple[dict[str, Any], int]:
    handle = client().start(researcher, request.args["topic"], id=id)
    return {"id": id, "status": handle.status(), "process": os.getpid()}, 202


@app.get("/runs/<id>")
def show(id: str) -> dict[str, Any]:
    handle = client().handle(id, researcher)
    status = handle.status()
    return {"id": id, "status": status, "output": handle.result() if status == "COMPLETED" else None}


@app.get("/runs/<id>/events")
def events(id: str) -> Response:
    sent = client().handle(id).sse(after=request.headers.get("Last-Event-ID"))
    return Response(sent, mimetype="text/event-stream")


@app.post("/runs/<id>/approval")
def approve(id: str) -> tuple[str, int]:
    client().handle(id, researcher).signal("approval", request.args["yes"] == "true", idempotency_key="approval")
    return "", 204
