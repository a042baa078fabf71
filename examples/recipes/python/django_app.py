"""Django, in one file: views that start, show, follow and answer runs, below a server that forks.

FLOVYN_URL=sqlite:agents.db gunicorn --preload --workers 2 django_app:app

As in flask_app.py each process opens its client on the first request; the agents run in a worker of its own (worker.py).
"""

from __future__ import annotations

import functools
import os

import flovyn
from agents import researcher
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY="of no use here")


@functools.cache
def client() -> flovyn.SyncClient:
    return flovyn.connect_sync()


def run(request: HttpRequest, id: str) -> JsonResponse:
    if request.method == "POST":
        handle = client().start(researcher, request.GET["topic"], id=id)
        return JsonResponse({"id": id, "status": handle.status(), "process": os.getpid()}, status=202)
    try:
        handle = client().handle(id, researcher)
    except flovyn.ExecutionNotFound as error:
        return JsonResponse({"code": error.code, "message": str(error)}, status=404)
    status = handle.status()
    output = handle.result() if status == "COMPLETED" else None
    return JsonResponse({"id": id, "status": status, "output": output})


def events(request: HttpRequest, id: str) -> StreamingHttpResponse:
    sent = client().handle(id).sse(after=request.headers.get("Last-Event-ID"))
    return StreamingHttpResponse(sent, content_type="text/event-stream")


def approval(request: HttpRequest, id: str) -> HttpResponse:
    client().handle(id, researcher).signal("approval", request.GET["yes"] == "true", idempotency_key="approval")
    return HttpResponse(status=204)


urlpatterns = [
    path("runs/<str:id>", run),
    path("runs/<str:id>/events", events),
    path("runs/<str:id>/approval", approval),
]
app = get_wsgi_application()
