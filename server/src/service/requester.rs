//! Who makes a call, and for which org.

use crate::access::Identity;
use crate::request_id::RequestId;
use flovyn_core::id::OrgId;
use std::fmt;

/// The caller of a request that was let in, the org it acts for, and the id of the request.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    pub(crate) org: OrgId,
    pub(crate) who: Identity,
    pub(crate) request: RequestId,
}

/// As the audit names it.
impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} request {}", self.who.name(), self.request)
    }
}
