"""FastAPI: the engine in the server's own process, events as SSE.

FLOVYN_URL=sqlite:agents.db uvicorn fastapi_app:app --timeout-graceful-shutdown 5

Several processes (`--workers 4`) may share the file, or a PostgreSQL; any of them may serve any run. A reader keeps its
connection until its run ends, so a graceful shutdown needs a limit: the reader comes back with `Last-Event-ID`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import flovyn
from agents import look_up, researcher
from fastapi import FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Open the backend with the server, and serve its agents until the server ends."""
    async with flovyn.connect() as client, client.worker(agents=[researcher], tasks=[look_up]):
        yield {"client": client}


app = FastAPI(lifespan=serving)


@app.exception_handler(flovyn.ExecutionNotFound)
async def not_found(request: Request, error: flovyn.ExecutionNotFound) -> JSONResponse:
    return JSONResponse({"code": error.code, "message": str(error)}, 404)


@app.post("/runs/{id}", status_code=202)
async def start(request: Request, id: str, topic: str) -> dict[str, str]:
    """Start a run; the same id again is the same run, so a caller may repeat this."""
    client: flovyn.Client = request.state.client
    try:
        handle = await client.start(researcher, topic, id=id)
    except flovyn.ExecutionExists as error:
        raise HTTPException(409, str(error)) from error
    return {"id": id, "status": await handle.status()}


@app.get("/runs/{id}")
async def show(request: Request, id: str) -> dict[str, Any]:
    handle = await request.state.client.handle(id, researcher)
    status = await handle.status()
    return {"id": id, "status": status, "output": await handle.result() if status == "COMPLETED" else None}


@app.get("/runs/{id}/events")
async def events(request: Request, id: str, last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
    """Send the run's events; a browser's EventSource resumes by itself behind the last one that it has seen."""
    handle = await request.state.client.handle(id)
    return StreamingResponse(handle.sse(after=last_event_id), media_type="text/event-stream")


@app.post("/runs/{id}/approval", status_code=204)
async def approve(request: Request, id: str, yes: bool) -> None:
    handle = await request.state.client.handle(id, researcher)
    await handle.signal("approval", yes, idempotency_key="approval")
