//! Errors as gRPC statuses that carry the code and the context, and back.

use super::v2::ErrorDetail;
use crate::error::{Code, Error, Kind};
use prost::Message;
use tonic::{Code as Grpc, Status};

/// The metadata key under which a refused answer says to whom the call was sent and with which token. The connection
/// adds it on the client's side before it hands the answer to the caller, so it never crosses a wire.
pub(crate) const REFUSED: &str = "flovyn-refused";

/// The status of an error. The kind of the error decides the gRPC code; its own code and its context are the details.
pub fn status_of_error(error: &Error) -> Status {
    let grpc = match error.kind() {
        _ if error.code() == Code::Unauthenticated => Grpc::Unauthenticated,
        _ if error.code() == Code::AlreadyExists => Grpc::AlreadyExists,
        Kind::Invalid => Grpc::InvalidArgument,
        Kind::Denied => Grpc::PermissionDenied,
        Kind::NotFound => Grpc::NotFound,
        Kind::Conflict | Kind::Failed => Grpc::FailedPrecondition,
        Kind::Lost => Grpc::Aborted,
        Kind::Limit => Grpc::ResourceExhausted,
        Kind::Unavailable => Grpc::Unavailable,
        Kind::Corrupt => Grpc::DataLoss,
        Kind::Fault => Grpc::Internal,
    };
    let detail = ErrorDetail {
        code: error.code().as_str().into(),
        context: error.context().iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
    };
    Status::with_details(grpc, error.message_outside(), detail.encode_to_vec().into())
}

/// The error of a status.
///
/// A status without our details comes from a proxy or a broken connection. It becomes `StorageUnavailable`, because
/// what was asked may or may not have happened. That includes the gRPC code `Internal`, which a broken HTTP/2 stream
/// gives. If the details have a code that only a newer server knows, the error is made from the status alone.
pub fn error_of_status(asked: &str, status: &Status) -> Error {
    let detail = ErrorDetail::decode(status.details()).ok();
    if let Some((code, detail)) = detail.and_then(|detail| Some((Code::parse(&detail.code)?, detail))) {
        let mut context: Vec<_> = detail.context.into_iter().collect();
        context.sort();
        return context
            .into_iter()
            .fold(Error::new(code, status.message()), |error, (name, value)| error.with(name, value));
    }
    let (code, advice) = match status.code() {
        Grpc::Unauthenticated => (Code::Unauthenticated, "pass a token it knows, in FLOVYN_TOKEN"),
        Grpc::PermissionDenied => (Code::PermissionDenied, "pass a token with the right to do this"),
        Grpc::NotFound => (Code::NotFound, "check its id, the server and the org"),
        Grpc::AlreadyExists => (Code::AlreadyExists, "use another name"),
        Grpc::InvalidArgument => (Code::InvalidArgument, "send what it takes"),
        Grpc::Unimplemented => (Code::InvalidArgument, "the server is of another version; update one of them"),
        _ => (Code::StorageUnavailable, "whether it happened is unknown; it may be asked again"),
    };
    let refused =
        status.metadata().get(REFUSED).map(|told| String::from_utf8_lossy(told.as_encoded_bytes()).into_owned());
    let refused = refused.map(|told| format!(" ({told})")).unwrap_or_default();
    let (answer, found) = (status.code(), status.message());
    Error::new(code, format!("{asked}: the server answered {answer:?}: {found}{refused}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_crosses_the_wire_with_its_context() {
        for code in Code::ALL {
            let sent = Error::new(*code, "asked, found, do").with("size", 11).with("limit", 10);
            let got = error_of_status("ask", &status_of_error(&sent));
            assert_eq!((got.code(), got.message()), (*code, "asked, found, do"));
            let mut context: Vec<_> = sent.context().to_vec();
            context.sort();
            assert_eq!(got.context(), context);
        }
    }

    #[test]
    fn a_status_of_somebody_else_means_unknown() {
        let error = error_of_status("commit", &Status::unknown("connection reset"));
        assert_eq!(error.code(), Code::StorageUnavailable);
        assert!(error.message().contains("commit") && error.message().contains("connection reset"), "{error}");
        let broken = error_of_status("commit", &Status::internal("h2 protocol error: http2 error"));
        assert_eq!(broken.code(), Code::StorageUnavailable);
        assert_eq!(error_of_status("look", &Status::not_found("no run")).code(), Code::NotFound);
    }
}
