//! The toolkit for Python: what a worker serves of it, the scripted model server of tests, model calls outside of runs.

use crate::encode;
use crate::error::Failure;
use crate::hub::{Hub, spawn};
use crate::reply::Reply;
use crate::runtime::Runtime;
use crate::task::TaskSpec;
use flovyn_core::error::{Code, Error};
use flovyn_core::host::{TaskSpec as Spec, threads};
use flovyn_core::payload::Payload;
use flovyn_core::sync::Mutex;
use flovyn_toolkit::config::{ToolkitConfig, Toolkits, registry};
use flovyn_toolkit::fake_llm;
use flovyn_toolkit::react::{GenerateInput, LlmGenerate};
use pyo3::prelude::*;
use std::sync::Arc;

/// Native agents and tasks that a worker serves beside its own: none until they are described.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Toolkit {
    toolkits: Arc<Toolkits>,
    threads: tokio::runtime::Handle,
}

impl Toolkit {
    pub(crate) fn host(&self) -> Arc<Toolkits> {
        self.toolkits.clone()
    }
}

#[pymethods]
impl Toolkit {
    #[new]
    fn new(runtime: &Runtime) -> Self {
        Self { toolkits: Arc::default(), threads: runtime.threads() }
    }

    /// Serves what is described, in the place of what was described before; ends with what is wrong with MCP servers that
    /// nothing depends on. `taken` are the tasks that Python serves.
    fn replace(
        &self,
        hub: &Hub,
        token: u64,
        runtime: &Runtime,
        descriptions: Vec<Bound<'_, PyAny>>,
        taken: Vec<String>,
    ) -> PyResult<()> {
        let mut texts = Vec::with_capacity(descriptions.len());
        for description in &descriptions {
            texts.push(String::from_utf8_lossy(&encode::json(description)?).into_owned());
        }
        let (store, toolkits) = (runtime.store().to_owned(), self.toolkits.clone());
        spawn(&self.threads, &hub.inbox, token, async move {
            Ok(Reply::Facts(toolkits.replace(&texts, &store, &taken).await?.into()))
        });
        Ok(())
    }

    /// The kinds of its tasks.
    fn task_kinds(&self) -> Vec<String> {
        self.toolkits.kinds_of_tasks()
    }

    /// How one of its tasks is scheduled for the workers of a queue; none for one that it does not serve.
    fn spec(&self, kind: &str, queue: &str) -> Option<TaskSpec> {
        self.toolkits.options(kind).map(|options| TaskSpec(Spec::queued(kind, options, queue.to_owned())))
    }

    /// Ends the connections to MCP servers.
    fn close(&self, hub: &Hub, token: u64) {
        let toolkits = self.toolkits.clone();
        spawn(&self.threads, &hub.inbox, token, async move {
            toolkits.close().await;
            Ok(())
        });
    }
}

/// Asks a model outside of a run; ends with what `llm.generate` gives.
#[pyfunction]
pub(crate) fn generate(
    hub: &Hub,
    token: u64,
    description: &Bound<'_, PyAny>,
    input: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let description = encode::json(description)?;
    let description = ToolkitConfig::parse(&String::from_utf8_lossy(&description)).map_err(Failure::from)?;
    let input: GenerateInput = encode::payload(input)?.parse().map_err(Failure::from)?;
    let models = registry(&description.providers).map_err(Failure::from)?;
    spawn(&threads().map_err(Failure::from)?, &hub.inbox, token, async move {
        match LlmGenerate::new(models).ask_alone(&input).await {
            Ok(reply) => Payload::of(&reply),
            Err(error) => Payload::of(&serde_json::json!({ "error": error })),
        }
    });
    Ok(())
}

/// A scripted model server on a thread of its own.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct FakeLlm {
    server: Mutex<Option<fake_llm::FakeLlm>>,
    url: String,
    openai_url: String,
}

impl FakeLlm {
    fn of<T>(&self, ask: impl FnOnce(&fake_llm::FakeLlm) -> T) -> PyResult<T> {
        match &*self.server.lock() {
            Some(server) => Ok(ask(server)),
            None => Err(invalid("the scripted model server is closed; ask it inside its `with` block".into()).into()),
        }
    }
}

#[pymethods]
impl FakeLlm {
    /// Starts one that plays a script of JSON.
    #[new]
    fn new(py: Python<'_>, script: &Bound<'_, PyAny>) -> PyResult<Self> {
        let text = encode::json(script)?;
        let script = fake_llm::Script::from_json(&String::from_utf8_lossy(&text))
            .map_err(|error| PyErr::from(invalid(error.to_string())))?;
        let server = py.detach(|| fake_llm::FakeLlm::start(script)).map_err(|error| {
            PyErr::from(invalid(format!("the scripted model cannot be served on 127.0.0.1: {error}")))
        })?;
        Ok(Self { url: server.url(), openai_url: server.openai_url(), server: Mutex::new(Some(server)) })
    }

    /// Its address, as Anthropic's clients take it.
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// Its address, as OpenAI's clients take it.
    #[getter]
    fn openai_url(&self) -> &str {
        &self.openai_url
    }

    /// All requests so far, with what became of each.
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let requests = self.of(fake_llm::FakeLlm::requests)?;
        Reply::Facts(serde_json::to_value(requests).unwrap_or_default()).into_python(py)
    }

    /// Responses that were sent to their end.
    fn paid(&self) -> PyResult<usize> {
        self.of(fake_llm::FakeLlm::paid)
    }

    /// Ends the server and all its connections.
    fn close(&self, py: Python<'_>) {
        let server = self.server.lock().take();
        py.detach(|| drop(server));
    }
}

fn invalid(message: String) -> Failure {
    Failure::Engine(Error::new(Code::InvalidArgument, message))
}
