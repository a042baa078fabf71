//! How Rust threads tell the event loop that something is there, and how ended calls reach it: many at a time.

use crate::error;
use crate::handle::{Ended, Run};
use crate::session::messages;
use crate::value::{WireOut, to_js};
use crate::watching::Events;
use flovyn_core::Result;
use flovyn_core::host::Wake;
use flovyn_core::model::Entry;
use flovyn_core::payload::Payload;
use flovyn_core::sync::Mutex;
use napi::Env;
use napi::bindgen_prelude::{Array, BufferSlice, Function, ToNapiValue};
use napi::sys;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use std::future::Future;
use std::sync::Arc;

/// The callback of the loop; it does not keep the process alive.
type Ring = ThreadsafeFunction<(), (), (), napi::Status, false, true>;

/// What an ended call gives back.
pub(crate) enum Reply {
    Nothing,
    Text(String),
    Values(Vec<Payload>),
    /// Facts as JSON text.
    Facts(serde_json::Value),
    Bytes(Vec<u8>),
    Handle(Run),
    Ended(Ended),
    Events(Events),
    Messages(Vec<Entry>),
    /// Messages with the cursor of the next page.
    Page(Vec<Entry>, Option<String>),
    Runtime(Box<crate::runtime::Runtime>),
}

impl ToNapiValue for Reply {
    unsafe fn to_napi_value(raw: sys::napi_env, reply: Self) -> napi::Result<sys::napi_value> {
        let env = Env::from_raw(raw);
        // SAFETY: the environment is the one that asks.
        unsafe {
            match reply {
                Self::Nothing => <()>::to_napi_value(raw, ()),
                Self::Text(text) => String::to_napi_value(raw, text),
                Self::Values(values) => {
                    let values: Vec<_> = values.into_iter().map(WireOut).collect();
                    Vec::<WireOut>::to_napi_value(raw, values)
                }
                Self::Facts(facts) => String::to_napi_value(raw, facts.to_string()),
                Self::Bytes(bytes) => {
                    let bytes = BufferSlice::from_data(&env, bytes)?;
                    <&BufferSlice<'_>>::to_napi_value(raw, &bytes)
                }
                Self::Handle(run) => crate::handle::Handle::to_napi_value(raw, run.0),
                Self::Ended(ended) => Array::to_napi_value(raw, ended.listed(&env)?),
                Self::Events(events) => Array::to_napi_value(raw, events.listed(&env)?),
                Self::Messages(entries) => Array::to_napi_value(raw, messages(&env, &entries)?),
                Self::Page(entries, next) => {
                    let mut page = env.create_array(2)?;
                    page.set(0, messages(&env, &entries)?)?;
                    page.set(1, next)?;
                    Array::to_napi_value(raw, page)
                }
                Self::Runtime(runtime) => crate::runtime::Runtime::to_napi_value(raw, *runtime),
            }
        }
    }
}

/// The mailbox of the loop.
pub(crate) struct Inbox {
    ended: Mutex<Vec<(u32, Result<Reply>)>>,
    ring: Ring,
}

impl Inbox {
    fn done(&self, token: u32, result: Result<Reply>) {
        let first = {
            let mut ended = self.ended.lock();
            ended.push((token, result));
            ended.len() == 1
        };
        if first {
            self.ready();
        }
    }

    /// Runs a future of the engine to its end and puts what it gives into the mailbox.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        threads: &tokio::runtime::Handle,
        token: u32,
        future: impl Future<Output = Result<Reply>> + Send + 'static,
    ) -> Abort {
        let inbox = self.clone();
        Abort(threads.spawn(async move { inbox.done(token, future.await) }).abort_handle())
    }

    /// Runs something that blocks on a thread of its own, before there are threads of the engine.
    pub(crate) fn on_thread(
        self: &Arc<Self>,
        token: u32,
        work: impl FnOnce() -> Result<Reply> + Send + 'static,
    ) -> napi::Result<()> {
        let inbox = self.clone();
        let started = std::thread::Builder::new().name("flovyn-open".into()).spawn(move || inbox.done(token, work()));
        started.map(|_| ()).map_err(|error| napi::Error::from_reason(format!("no thread could be started: {error}")))
    }
}

impl Wake for Inbox {
    fn ready(&self) {
        self.ring.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }
}

/// The mailbox of the event loop.
#[napi]
pub struct Hub {
    pub(crate) inbox: Arc<Inbox>,
}

#[napi]
impl Hub {
    /// `ring` is called on the loop whenever something may be taken.
    #[napi(constructor)]
    pub fn new(ring: Function<'_, (), ()>) -> napi::Result<Self> {
        let ring = ring.build_threadsafe_function::<()>().weak::<true>().build()?;
        Ok(Self { inbox: Arc::new(Inbox { ended: Mutex::default(), ring }) })
    }

    /// Takes the calls that have ended: token, whether it worked, value or error text, and so on.
    #[napi]
    pub fn drain<'env>(&self, env: &'env Env) -> napi::Result<Array<'env>> {
        let ended = std::mem::take(&mut *self.inbox.ended.lock());
        let mut list = env.create_array(0)?;
        for (token, result) in ended {
            list.insert(token)?;
            match result {
                Ok(reply) => match to_js(env, reply)? {
                    Ok(value) => {
                        list.insert(true)?;
                        list.insert(value)?;
                    }
                    Err(text) => {
                        list.insert(false)?;
                        list.insert(text)?;
                    }
                },
                Err(error) => {
                    list.insert(false)?;
                    list.insert(error::text(&error))?;
                }
            }
        }
        Ok(list)
    }
}

/// Gives up a call whose caller no longer waits.
#[napi]
pub struct Abort(tokio::task::AbortHandle);

#[napi]
impl Abort {
    /// Ends the call; nothing comes of it any more.
    #[napi]
    pub fn abort(&self) {
        self.0.abort();
    }
}
