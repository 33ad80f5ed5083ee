//! The answers of a server that does not answer, in PD's words: clients match on code and text.

use tonic::Status;

/// Of a server that has stopped, or has not started.
pub(in crate::replica) fn closed() -> Status {
    Status::unavailable("server not started")
}

/// To heavy work that found no room in time.
pub(super) fn busy() -> Status {
    Status::resource_exhausted("too many large requests at once; ask again, or another server")
}

/// Of a member that is not the leader, to what only a leader does. Clients look for the words
/// `not leader` and refresh their member list.
pub(super) fn not_leader() -> Status {
    Status::unavailable("not leader")
}

/// Of a member that is not the leader, to a caller who insists on one.
pub(super) fn follower_not_allowed() -> Status {
    Status::unavailable("not leader and follower handling not allowed")
}

/// To a request that is to be passed on to somebody other than the leader.
pub(super) fn forwarded_host_is_no_leader(host: &str) -> Status {
    Status::invalid_argument(format!(
        "forwarded host {} is not a client URL of the PD leader: pd is not leader of cluster",
        quoted(host)
    ))
}

/// Text in double quotes with what is not printable escaped, and cut: it is the caller's.
fn quoted(text: &str) -> String {
    const LONGEST: usize = 256;
    let short: String = text.chars().take(LONGEST).collect();
    format!("\"{}\"", short.escape_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_text_is_quoted_and_cut() {
        let status = forwarded_host_is_no_leader("http://a\"\n:1");
        assert_eq!(
            status.message(),
            "forwarded host \"http://a\\\"\\n:1\" is not a client URL of the PD leader: pd is not leader of cluster"
        );
        assert!(
            forwarded_host_is_no_leader(&"x".repeat(10_000))
                .message()
                .len()
                < 400
        );
    }
}
