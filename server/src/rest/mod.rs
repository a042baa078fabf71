//! REST: `/api/orgs/{org}/…` in camelCase JSON, one file per resource. Decides nothing: it reads requests, asks the service
//! or the backend, and writes answers.

mod browser_tokens;
mod budget;
mod catalog;
mod definitions;
mod entries;
mod events;
mod executions;
mod families;
mod keys;
mod machines;
mod oidc;
mod operators;
mod payloads;
mod problem;
mod request;
mod schedules;
mod session;
mod state;
mod steer;
mod summary;
mod tasks;
mod usage;
mod value;
mod version;

pub(crate) use problem::{Problem, ProblemBody, contain_http};
pub(crate) use request::{Caller, Json, MAX_BODY, QueryParams, idempotency_key, refused};
pub(crate) use usage::UsageView;
pub(crate) use version::Version;

use crate::service::Service;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The routes of callers that have no token yet.
pub(crate) fn of_strangers() -> OpenApiRouter<Service> {
    OpenApiRouter::default()
        .routes(routes!(machines::request, machines::collect))
        .routes(routes!(session::sign_in, session::current, session::sign_out))
        .routes(routes!(oidc::methods))
        .routes(routes!(oidc::begin))
        .routes(routes!(oidc::callback))
}

/// The routes of an org.
pub(crate) fn of_org() -> OpenApiRouter<Service> {
    OpenApiRouter::default()
        .routes(routes!(executions::start, executions::list))
        .routes(routes!(executions::detail, steer::delete))
        .routes(routes!(families::children))
        .routes(routes!(families::tree))
        .routes(routes!(steer::cancel))
        .routes(routes!(steer::remove))
        .routes(routes!(steer::signal))
        .routes(routes!(steer::resume))
        .routes(routes!(steer::retry))
        .routes(routes!(steer::resolve))
        .routes(routes!(steer::divergence))
        .routes(routes!(steer::fork))
        .routes(routes!(entries::entries))
        .routes(routes!(entries::messages))
        .routes(routes!(entries::message))
        .routes(routes!(events::list))
        .routes(routes!(tasks::tasks))
        .routes(routes!(tasks::tool_calls))
        .routes(routes!(tasks::tool_call))
        .routes(routes!(executions::checkpoints))
        .routes(routes!(executions::latest_checkpoint))
        .routes(routes!(executions::checkpoint))
        .routes(routes!(state::state))
        .routes(routes!(usage::of_run))
        .routes(routes!(usage::of_org))
        .routes(routes!(payloads::put))
        .routes(routes!(payloads::get))
        .routes(routes!(definitions::create, definitions::list))
        .routes(routes!(definitions::detail, definitions::replace, definitions::delete))
        .routes(routes!(catalog::models))
        .routes(routes!(catalog::tools))
        .routes(routes!(operators::queues))
        .routes(routes!(operators::unserved))
        .routes(routes!(operators::limits))
        .routes(routes!(operators::limit, operators::free))
        .routes(routes!(operators::workers))
        .routes(routes!(operators::audit))
        .routes(routes!(browser_tokens::create))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(machines::list))
        .routes(routes!(machines::approve))
        .routes(routes!(machines::revoke))
        .routes(routes!(schedules::put, schedules::list))
        .routes(routes!(schedules::detail, schedules::delete))
}
