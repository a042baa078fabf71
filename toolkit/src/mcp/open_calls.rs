//! The calls of one connection that have no result yet, and what their server asks meanwhile. A server of the handshake asks by
//! a request of its own; this file finds the call that the request belongs to, and hands the answer back.
//!
//! Over streamable HTTP a request comes in the response to its call, and one that belongs to a task names it. On pipes it may be
//! that nothing says which of several calls asks. Then it is the oldest one that waits for no other answer. The answer reaches
//! the right place in any case, for it answers the server's own request; what may be wrong is the call under which a person is
//! asked. So the other calls of the connection have no time-out meanwhile, and a question whose call has ended goes to the next.

use flovyn_core::sync::Mutex;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::service::{InboundStreamOrigin, RequestContext, RoleClient};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{RwLock, RwLockReadGuard, mpsc, oneshot, watch};
use tokio::time::Instant;

/// The metadata of a request that belongs to a task.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// How many questions of one call may wait for their answers.
const MAX_QUESTIONS: usize = 32;
/// The code of the error for a request that is not answered.
const REFUSED: ErrorCode = ErrorCode(-1);

/// The calls of a connection that have no result yet, oldest first.
pub(super) struct OpenCalls {
    calls: Mutex<Vec<OpenCall>>,
    next: AtomicU64,
    /// Held while a call is sent: what a server asks at once comes to a call that is known.
    sending: RwLock<()>,
    /// A copy is in each question without an answer of which it is not known which call asks it.
    uncertain: Arc<Uncertain>,
    ended: watch::Sender<bool>,
}

struct OpenCall {
    number: u64,
    request: Option<RequestId>,
    /// The task of the server that works on it.
    task: Option<String>,
    questions: mpsc::UnboundedSender<ServerQuestion>,
    /// A copy is in each of its questions that has no answer.
    open: Arc<()>,
}

/// When the last question had its answer of which it was not known which call asked it.
#[derive(Default)]
struct Uncertain(Mutex<Option<Instant>>);

/// Marks such a question.
struct UncertainMark(Arc<Uncertain>);

impl Drop for UncertainMark {
    fn drop(&mut self) {
        *self.0.0.lock() = Some(Instant::now());
    }
}

/// A request of a server that a person has to answer. Where it is dropped, the server learns that nobody has.
pub(super) struct ServerQuestion {
    pub method: &'static str,
    pub parameters: Value,
    answer: oneshot::Sender<Value>,
    open: Option<Arc<()>>,
    uncertain: Option<UncertainMark>,
}

/// The place of a call among the open ones, as long as it is there.
pub(super) struct Registration {
    calls: Arc<OpenCalls>,
    number: u64,
    questions: mpsc::UnboundedReceiver<ServerQuestion>,
}

/// What is known of where a question comes from.
enum Origin {
    Task(String),
    Request(RequestId),
    Unknown,
}

impl Default for OpenCalls {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            next: AtomicU64::default(),
            sending: RwLock::default(),
            uncertain: Arc::default(),
            ended: watch::Sender::new(false),
        }
    }
}

impl OpenCalls {
    /// Held while a call is sent and registered.
    pub(super) async fn sending(&self) -> RwLockReadGuard<'_, ()> {
        self.sending.read().await
    }

    pub(super) fn register(self: &Arc<Self>, request: Option<RequestId>, task: Option<String>) -> Registration {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, questions) = mpsc::unbounded_channel();
        self.calls.lock().push(OpenCall { number, request, task, questions: sender, open: Arc::default() });
        Registration { calls: self.clone(), number, questions }
    }

    /// Until when a person was asked something of which it is not known for which call: until now, if they still are.
    fn uncertain_until(&self) -> Option<Instant> {
        match Arc::strong_count(&self.uncertain) > 1 {
            true => Some(Instant::now()),
            false => *self.uncertain.0.lock(),
        }
    }

    /// Nothing comes from the server any more, so no question has an answer.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Asks a person, for the call that the request belongs to, and returns the answer; none if nobody gives one.
    pub(super) async fn ask(
        &self,
        method: &'static str,
        parameters: Value,
        context: &RequestContext<RoleClient>,
    ) -> Result<Option<Value>, ErrorData> {
        // Its call may be on its way out.
        drop(self.sending.write().await);
        let task = context.meta.0.0.get(RELATED_TASK).cloned();
        let task_id = task.as_ref().and_then(|task| task["taskId"].as_str());
        let origin = match (task_id, context.extensions.get::<InboundStreamOrigin>()) {
            (Some(id), _) => Origin::Task(id.to_owned()),
            (None, Some(InboundStreamOrigin::OutboundRequest(id))) => Origin::Request(id.clone()),
            (None, Some(InboundStreamOrigin::Unassociated) | None) => Origin::Unknown,
        };
        let (answer, answered) = oneshot::channel();
        let question = ServerQuestion { method, parameters, answer, open: None, uncertain: None };
        let is_certain = self.route(question, &origin).map_err(|why| ErrorData::new(REFUSED, why, None))?;
        let mut ended = self.ended.subscribe();
        let gone = |why: &'static str| Err(ErrorData::new(REFUSED, why, None));
        let answer = tokio::select! {
            biased;
            answer = answered => match answer {
                Ok(answer) => Some(answer),
                // The server must not take this for the decision of a person.
                Err(_) if is_certain => return gone("the call that this belongs to was called off"),
                Err(_) => None,
            },
            () = context.ct.cancelled() => return gone("the question was taken back"),
            () = async { drop(ended.wait_for(|ended| *ended).await) } => return gone("the connection has ended"),
        };
        Ok(answer.map(|mut answer| {
            if let (Some(task), Some(fields)) = (task, answer.as_object_mut()) {
                fields.insert("_meta".to_owned(), json!({ RELATED_TASK: task }));
            }
            answer
        }))
    }

    /// Gives a question to its call, and says whether that is certain to be the one. The error says why it has none.
    fn route(&self, mut question: ServerQuestion, origin: &Origin) -> Result<bool, &'static str> {
        let calls = self.calls.lock();
        let known = calls.iter().find(|call| match origin {
            Origin::Task(id) => call.task.as_ref() == Some(id),
            Origin::Request(id) => call.request.as_ref() == Some(id),
            Origin::Unknown => false,
        });
        let waits_for_none = |call: &&OpenCall| Arc::strong_count(&call.open) == 1;
        let call = known.or_else(|| calls.iter().find(waits_for_none)).or_else(|| calls.first());
        let Some(call) = call else { return Err("no call is under way that this could belong to") };
        if Arc::strong_count(&call.open) > MAX_QUESTIONS {
            return Err("too many questions of this call have no answer yet");
        }
        question.open = Some(call.open.clone());
        let is_certain = known.is_some() || calls.len() == 1;
        question.uncertain = (!is_certain).then(|| UncertainMark(self.uncertain.clone()));
        call.questions.send(question).map_err(|_| "the call that this belongs to has ended")?;
        Ok(is_certain)
    }
}

impl ServerQuestion {
    pub(super) fn answer(self, answer: Value) {
        // The server may have taken the question back.
        let _ = self.answer.send(answer);
    }
}

impl Registration {
    /// The call goes on with another request.
    pub(super) fn set_request(&self, id: RequestId) {
        if let Some(call) = self.calls.calls.lock().iter_mut().find(|call| call.number == self.number) {
            call.request = Some(id);
        }
    }

    /// The next question of the server. It never resolves where there is none. Cancel-safe.
    pub(super) async fn question(&mut self) -> ServerQuestion {
        match self.questions.recv().await {
            Some(question) => question,
            None => std::future::pending().await,
        }
    }

    /// Until when a person may have been asked something for this call under another one.
    pub(super) fn uncertain_until(&self) -> Option<Instant> {
        self.calls.uncertain_until()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.calls.calls.lock().retain(|call| call.number != self.number);
        self.questions.close();
        while let Ok(question) = self.questions.try_recv() {
            if question.uncertain.is_some() {
                let _ = self.calls.route(question, &Origin::Unknown);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(calls: &OpenCalls, origin: &Origin) -> (oneshot::Receiver<Value>, Result<bool, &'static str>) {
        let (answer, answered) = oneshot::channel();
        let question = ServerQuestion { method: "m", parameters: Value::Null, answer, open: None, uncertain: None };
        (answered, calls.route(question, origin))
    }

    async fn answer(call: &mut Registration, answer: u8) {
        call.question().await.answer(answer.into());
    }

    #[tokio::test]
    async fn a_question_goes_to_its_call_and_else_to_the_oldest_that_waits_for_none() {
        let calls = Arc::new(OpenCalls::default());
        assert!(question(&calls, &Origin::Unknown).1.is_err(), "there is no call");
        let mut first = calls.register(Some(RequestId::Number(1)), None);
        let (only, _) = question(&calls, &Origin::Unknown);
        assert_eq!(calls.uncertain_until(), None, "it can be no other call's");
        answer(&mut first, 0).await;
        let mut second = calls.register(Some(RequestId::Number(2)), Some("t".into()));
        let (of_request, _) = question(&calls, &Origin::Request(RequestId::Number(2)));
        let (of_task, _) = question(&calls, &Origin::Task("t".into()));
        assert_eq!(calls.uncertain_until(), None);
        let (unknown, routed) = question(&calls, &Origin::Unknown);
        assert!(routed == Ok(false) && calls.uncertain_until().is_some());
        answer(&mut second, 1).await;
        answer(&mut second, 2).await;
        answer(&mut first, 3).await;
        let answered = calls.uncertain_until();
        assert!(answered.is_some() && calls.uncertain_until() == answered, "it has its answer");
        let answers = (only.await, of_request.await, of_task.await, unknown.await);
        assert_eq!(answers, (Ok(0.into()), Ok(1.into()), Ok(2.into()), Ok(3.into())));
    }

    #[tokio::test]
    async fn a_call_that_waits_for_an_answer_is_asked_last() {
        let calls = Arc::new(OpenCalls::default());
        let mut first = calls.register(None, None);
        let mut second = calls.register(None, None);
        let asked: Vec<_> = (0..3).map(|_| question(&calls, &Origin::Unknown)).collect();
        let of_first = (first.question().await, first.question().await);
        assert!(second.questions.try_recv().is_ok() && first.questions.try_recv().is_err());
        drop((of_first, asked));
    }

    #[tokio::test]
    async fn an_uncertain_question_of_a_call_that_has_ended_goes_to_the_next() {
        let calls = Arc::new(OpenCalls::default());
        let first = calls.register(Some(RequestId::Number(1)), None);
        let mut second = calls.register(None, None);
        let (its_own, _) = question(&calls, &Origin::Request(RequestId::Number(1)));
        let _uncertain = question(&calls, &Origin::Unknown);
        let (passed_on, _) = question(&calls, &Origin::Unknown);
        drop(first);
        // The first unknown question went to the second call, for the first call had one of its own.
        answer(&mut second, 1).await;
        answer(&mut second, 2).await;
        assert_eq!(passed_on.await, Ok(2.into()));
        assert!(its_own.await.is_err(), "the call that it belongs to is gone");
    }

    #[tokio::test]
    async fn questions_of_a_call_are_bounded() {
        let calls = Arc::new(OpenCalls::default());
        let _first = calls.register(None, None);
        let asked: Vec<_> = (0..=MAX_QUESTIONS).map(|_| question(&calls, &Origin::Unknown)).collect();
        assert_eq!(asked.iter().filter(|(_, routed)| routed.is_err()).count(), 1);
    }
}
