//! An agent that has a model plan: the parts of the plan are done by other agents, those that do not wait for each other at the
//! same time, and the model makes one answer of their results.
//!
//! The planner is an agent of the built-in kind. It is asked for a plan, for another one where the plan cannot be done or a part
//! has failed, and for the answer, each time as a child of its own. So every call is durable, and the run of this agent
//! makes no model call itself.

use super::escalate;
use super::plan::{Plan, PlannedTask, Workers};
use crate::react::{
    AgentConfig, AgentInput, Delegate, Giving, ModelChoice, OutputSpec, answer_text, end_of, question_of,
};
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::journal::{ChildCall, ChildOptions};
use flovyn_core::model::ChildEvent;
use futures::future::join_all;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// An agent that has a model plan, and other agents do the parts.
#[derive(Clone)]
pub struct PlanAndExecute {
    /// The kind.
    pub kind: String,
    /// The agent that plans and answers: one of the built-in kind.
    pub planner: Delegate,
    /// The agents that do the parts.
    pub workers: Vec<Delegate>,
    /// How often a part that has failed is tried again before there is another plan.
    pub retries: u32,
    /// How often there is another plan, because a part has failed or the answer does not meet the criteria.
    pub max_replans: u32,
    /// How often the planner is asked again for a plan that can be done.
    pub plan_retries: u32,
    /// The most parts of a plan.
    pub max_tasks: usize,
}

/// What a run is started with: a text, or the task with what its answer has to meet.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PlanInput {
    /// What is to be done.
    pub task: String,
    /// What the answer has to meet, in words.
    pub criteria: Vec<String>,
}

/// What a run ends with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanOutcome {
    /// The answer.
    pub text: String,
    /// Whether the planner says that it meets the criteria.
    pub satisfied: bool,
    /// What is missing, where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// How often there was another plan.
    pub replans: u32,
    /// The parts that were done, in the order of their ends.
    pub tasks: Vec<TaskReport>,
}

/// A part of a plan that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// The part.
    pub id: String,
    /// The agent that did it.
    pub worker: String,
    /// Its result.
    pub result: String,
}

/// What the planner says at the end.
#[derive(Deserialize)]
struct Answer {
    answer: String,
    satisfied: bool,
    #[serde(default)]
    missing: Option<String>,
}

impl<'de> Deserialize<'de> for PlanInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Wire {
            task: String,
            #[serde(default)]
            criteria: Vec<String>,
        }
        match Value::deserialize(deserializer)? {
            Value::String(task) => Ok(Self { task, criteria: Vec::new() }),
            other => serde_json::from_value(other)
                .map(|Wire { task, criteria }| Self { task, criteria })
                .map_err(serde::de::Error::custom),
        }
    }
}

impl PlanAndExecute {
    /// An agent with the usual limits: a part is tried twice, and there are two more plans at most.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no workers, two of one name, or what one takes is no JSON Schema.
    pub fn new(kind: impl Into<String>, planner: Delegate, workers: Vec<Delegate>) -> Result<Self> {
        let made =
            Self { kind: kind.into(), planner, workers, retries: 1, max_replans: 2, plan_retries: 2, max_tasks: 20 };
        made.known_workers().map(|_| made.clone())
    }

    fn known_workers(&self) -> Result<Workers> {
        Workers::new(&self.workers)
            .map_err(|why| Error::new(Code::InvalidArgument, format!("the agent {:?} cannot plan: {why}", self.kind)))
    }
}

#[async_trait]
impl AgentDefinition for PlanAndExecute {
    type State = ();
    type Input = PlanInput;
    type Output = PlanOutcome;

    fn kind(&self) -> &str {
        &self.kind
    }

    fn version(&self) -> Option<String> {
        Some(concat!("plan-and-execute ", env!("CARGO_PKG_VERSION")).to_owned())
    }

    async fn execute(&self, ctx: &dyn AgentContext, input: PlanInput) -> Result<PlanOutcome> {
        let workers = self.known_workers()?;
        let questions = futures::lock::Mutex::new(());
        let run = PlannedRun { agent: self, ctx, input: &input, workers, questions };
        run.to_end().await
    }
}

/// A run of the agent.
struct PlannedRun<'a> {
    agent: &'a PlanAndExecute,
    ctx: &'a dyn AgentContext,
    input: &'a PlanInput,
    workers: Workers,
    /// Held while somebody is asked: a person is asked one question at a time.
    questions: futures::lock::Mutex<()>,
}

impl PlannedRun<'_> {
    async fn to_end(&self) -> Result<PlanOutcome> {
        let mut reports: Vec<TaskReport> = Vec::new();
        let mut said = String::new();
        for replans in 0..=self.agent.max_replans {
            let plan = self.plan(replans, &reports, &said).await?;
            let failures = self.execute(replans, plan, &mut reports).await?;
            if !failures.is_empty() {
                said = format!("These tasks of the last plan have failed:\n{}", failures.join("\n"));
                continue;
            }
            let Answer { answer: text, satisfied, missing } = self.answer(replans, &reports).await?;
            if satisfied || replans == self.agent.max_replans {
                return Ok(PlanOutcome { text, satisfied, missing, replans, tasks: reports });
            }
            let missing = missing.unwrap_or_else(|| "the criteria are not met".to_owned());
            said = format!("The answer that was made of the results does not do yet: {missing}");
        }
        let message =
            format!("the task was planned {} times and could not be done; {said}", self.agent.max_replans + 1);
        Err(Error::new(Code::AgentFailed, message).with("error_type", "plan_failed"))
    }

    /// A plan that can be done.
    async fn plan(&self, replans: u32, reports: &[TaskReport], said: &str) -> Result<Plan> {
        let done: BTreeSet<_> = reports.iter().map(|report| report.id.clone()).collect();
        let mut prompt = format!(
            "Split this task into parts for the agents below, as few as will do. Parts that do not need each other's results are \
             done at the same time.\n\nThe task:\n{}{}\n\nThe agents:\n{}",
            self.input.task,
            self.criteria(),
            self.workers.described()
        );
        if !reports.is_empty() {
            prompt.push_str(&format!(
                "\n\nDone already, with these results; plan only what is missing:\n{}",
                listed(reports)
            ));
        }
        if !said.is_empty() {
            prompt.push_str(&format!("\n\n{said}"));
        }
        let form = OutputSpec { name: "plan".into(), ..OutputSpec::new(self.workers.schema(self.agent.max_tasks)) };
        let mut faults = Vec::new();
        for number in 0..=self.agent.plan_retries {
            let asked = match faults.is_empty() {
                true => prompt.clone(),
                false => format!("{prompt}\n\nYour last plan cannot be done:\n{}\nMake another one.", bullets(&faults)),
            };
            let plan: Plan = self.ask(&format!("plan-{replans}-{number}"), asked, form.clone()).await?;
            faults = plan.faults(&self.workers, &done);
            if faults.is_empty() {
                return Ok(plan);
            }
        }
        let message = format!(
            "the planner {:?} was asked {} times and made no plan that can be done: {}",
            self.agent.planner.name,
            self.agent.plan_retries + 1,
            faults.join("; ")
        );
        Err(Error::new(Code::AgentFailed, message).with("error_type", "invalid_plan"))
    }

    /// Does the parts, those that are ready at the same time. Returns what has failed; what waits for that is not begun.
    async fn execute(&self, replans: u32, plan: Plan, reports: &mut Vec<TaskReport>) -> Result<Vec<String>> {
        let mut left = plan.tasks;
        let mut failures = Vec::new();
        loop {
            let done: BTreeSet<_> = reports.iter().map(|report| report.id.clone()).collect();
            let results = reports.iter().map(|report| (report.id.clone(), report.result.clone())).collect();
            let (ready, waiting): (Vec<_>, Vec<_>) = left.into_iter().partition(|task| task.is_ready(&done));
            if ready.is_empty() {
                failures.extend(
                    waiting.iter().map(|task| format!("- {}: not begun, since it waits for one that failed", task.id)),
                );
                return Ok(failures);
            }
            let ends = join_all(ready.iter().map(|task| self.task(replans, task, &results))).await;
            for (PlannedTask { id, worker, .. }, end) in ready.into_iter().zip(ends) {
                match end? {
                    Ok(result) => reports.push(TaskReport { id, worker, result }),
                    Err(why) => failures.push(format!("- {id} ({worker}): {why}")),
                }
            }
            left = waiting;
            if left.is_empty() {
                return Ok(failures);
            }
        }
    }

    /// Does one part, again where it fails.
    async fn task(
        &self,
        replans: u32,
        task: &PlannedTask,
        results: &BTreeMap<String, String>,
    ) -> Result<Result<String, String>> {
        let Some(worker) = self.workers.get(&task.worker) else {
            return Ok(Err(format!("there is no worker {:?}", task.worker)));
        };
        let arguments = task.filled(results, worker.text_argument());
        let input = worker.input(Giving::Delegates, &arguments, &AgentInput::default(), &ModelChoice::default())?;
        let mut why = String::new();
        for number in 0..=self.agent.retries {
            let options = worker.options(Some(format!("task-{replans}-{}-{number}", task.id)));
            match self.child(worker, input.clone(), options).await? {
                Ok(result) => return Ok(Ok(result)),
                Err(words) => why = words,
            }
        }
        Ok(Err(why))
    }

    /// The answer that the planner makes of the results.
    async fn answer(&self, replans: u32, reports: &[TaskReport]) -> Result<Answer> {
        let prompt = format!(
            "Other agents have done the parts of this task. Answer it with their results, and say whether the answer does what was \
             asked{}.\n\nThe task:\n{}{}\n\nThe results:\n{}",
            if self.input.criteria.is_empty() { "" } else { " and meets the criteria" },
            self.input.task,
            self.criteria(),
            listed(reports)
        );
        let schema = json!({
            "type": "object",
            "properties": {
                "answer": { "type": "string", "description": "The answer, as whoever has asked will read it." },
                "satisfied": { "type": "boolean", "description": "Whether it does what was asked." },
                "missing": { "type": "string", "description": "What is missing, where it does not." }
            },
            "required": ["answer", "satisfied"]
        });
        let form = OutputSpec { name: "answer".into(), ..OutputSpec::new(schema) };
        self.ask(&format!("answer-{replans}"), prompt, form).await
    }

    fn criteria(&self) -> String {
        match self.input.criteria.as_slice() {
            [] => String::new(),
            criteria => format!("\n\nThe answer has to meet these criteria:\n{}", bullets(criteria)),
        }
    }

    /// Asks the planner for a value of a form.
    async fn ask<T: serde::de::DeserializeOwned>(&self, id: &str, prompt: String, form: OutputSpec) -> Result<T> {
        let config = AgentConfig { output: Some(form), ..AgentConfig::default() };
        let config = json!({ "mode": config.mode, "output": config.output });
        let input = Payload::of(&json!({ "userPrompt": prompt, "config": config }))?;
        let planner = &self.agent.planner;
        match self.child(planner, input, planner.options(Some(id.to_owned()))).await? {
            Ok(answer) => Payload::json(answer).parse(),
            Err(why) => {
                let message = format!("the planner has not answered: {why}");
                Err(Error::new(Code::AgentFailed, message).with("error_type", "planner_failed"))
            }
        }
    }

    /// Runs a child to its end: what it has answered, or why it has not, in words.
    async fn child(&self, agent: &Delegate, input: Payload, options: ChildOptions) -> Result<Result<String, String>> {
        let call = ChildCall { kind: agent.kind.as_str().into(), input, options, hand_off: None };
        let (child, _start) = self.ctx.spawn_raw(call)?;
        loop {
            let event = match self.ctx.wait_for_child_event(child, None)?.await {
                Ok(event) => event,
                Err(error) if error.code() == Code::Cancelled => return Err(error),
                Err(error) => return Ok(Err(error.message().to_owned())),
            };
            match event {
                ChildEvent::Request { name, payload, request } => {
                    let question = question_of(&name, &self.ctx.load(&payload).await?);
                    let answer = {
                        let _one = self.questions.lock().await;
                        escalate(self.ctx, &question).await?
                    };
                    let answer = answer.unwrap_or_else(|| "Nobody has answered; go on without.".to_owned());
                    match self.ctx.respond(&request, &answer)?.await {
                        Err(error) if error.code() == Code::ExecutionClosed => {}
                        ended => ended?,
                    }
                }
                ChildEvent::Completed { output } => return answer_text(&self.ctx.load(&output).await?).map(Ok),
                other => {
                    if let Some(end) = end_of(agent, child, other)? {
                        return Ok(Err(end.plain_text()));
                    }
                }
            }
        }
    }
}

fn listed(reports: &[TaskReport]) -> String {
    reports.iter().map(|report| format!("## {}\n{}", report.id, report.result)).collect::<Vec<_>>().join("\n\n")
}

fn bullets(lines: &[String]) -> String {
    lines.iter().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n")
}
