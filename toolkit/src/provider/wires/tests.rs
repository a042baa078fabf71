//! What refusals mean, whatever the words.

use super::*;

#[test]
fn refusals_say_what_a_caller_can_do() {
    for (status, code, message, kind) in [
        (
            400,
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
            ErrorKind::ContextOverflow,
        ),
        (400, "context_length_exceeded", "", ErrorKind::ContextOverflow),
        (400, "invalid_request_error", "messages.1: tool_use without tool_result", ErrorKind::InvalidRequest),
        (400, "invalid_request_error", "Your credit balance is too low", ErrorKind::QuotaExceeded),
        (401, "", "", ErrorKind::Unauthorized),
        (402, "", "", ErrorKind::QuotaExceeded),
        (404, "model_not_found", "", ErrorKind::UnknownModel),
        (429, "insufficient_quota", "", ErrorKind::QuotaExceeded),
        (429, "rate_limit_exceeded", "", ErrorKind::RateLimited),
        (500, "", "", ErrorKind::Unavailable),
        (529, "overloaded_error", "Overloaded", ErrorKind::Unavailable),
    ] {
        let error = refused(status, code, message);
        assert_eq!((error.kind, error.status), (kind, Some(status)), "{status} {code} {message}");
        assert!(!error.message.is_empty());
    }
    assert_eq!(failed("overloaded_error", "Overloaded").kind, ErrorKind::Unavailable);
    assert_eq!(failed("context_length_exceeded", "").kind, ErrorKind::ContextOverflow);
    assert_eq!(failed("never seen", "").kind, ErrorKind::Unavailable);
}

#[test]
fn paths_follow_what_each_client_takes_for_a_base() {
    assert_eq!(path(Api::AnthropicMessages, "https://api.anthropic.com"), "/v1/messages");
    assert_eq!(path(Api::AnthropicMessages, "https://proxy/v1"), "/messages");
    assert_eq!(path(Api::OpenaiChat, "https://api.openai.com/v1"), "/chat/completions");
    assert_eq!(path(Api::OpenaiResponses, "https://api.openai.com/v1"), "/responses");
}
