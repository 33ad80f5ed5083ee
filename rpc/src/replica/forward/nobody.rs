//! Calls that nobody takes: unknown services, and what may not be passed on.
//!
//! Such a call is answered as gRPC wants it, in trailers alone: a content type and a status. What its caller still sends
//! is taken first, as far as it comes at once: HTTP/2 lets a server answer early and break off the rest, and some clients
//! then take the break for the answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body::Body as _;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;

/// How long a caller may take for the rest of a call that is refused.
const MOMENT: Duration = Duration::from_millis(50);
/// How much of it is taken.
const REST: usize = 64 << 10;

/// Answers with `status`.
pub(in crate::replica) async fn refuse(status: Status, body: Body) -> http::Response<Body> {
    // An answer all the same.
    let _ = timeout(MOMENT, take(body)).await;
    status.into_http()
}

/// That there is no such method.
pub(in crate::replica) async fn unknown(path: &str, body: Body) -> http::Response<Body> {
    let shown: String = path.chars().take(100).collect();
    refuse(
        Status::unimplemented(format!("unknown method {shown}")),
        body,
    )
    .await
}

async fn take(mut body: Body) {
    let mut taken = 0;
    while taken < REST {
        match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            Some(Ok(frame)) => taken += frame.data_ref().map_or(0, bytes::Bytes::len),
            _ => return,
        }
    }
}

/// What is no call of gRPC has no business at the path of one, and is not passed on.
pub(super) fn not_grpc() -> http::Response<Body> {
    let mut answer = http::Response::new(Body::empty());
    *answer.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    answer
}

/// Whether it is a call of gRPC, and not one of what is named after it.
pub(in crate::replica) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    kind.and_then(|kind| kind.strip_prefix(b"application/grpc"))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http_body::Frame;
    use tonic::Code;

    use super::super::tests::fed;
    use super::*;

    fn is_unimplemented(answer: &http::Response<Body>) {
        assert_eq!(answer.status(), 200);
        let header = |name: &str| answer.headers().get(name).map(HeaderValue::as_bytes);
        assert_eq!(header("grpc-status"), Some(&b"12"[..]));
        assert_eq!(header("content-type"), Some(&b"application/grpc"[..]));
        assert!(answer.body().is_end_stream(), "trailers alone");
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_call_is_taken_before_it_is_refused() {
        let (feed, body) = fed();
        let refused = tokio::spawn(unknown("/etcdserverpb.Cluster/MemberList", body));
        feed.send(Frame::data(vec![0; 5].into()))
            .await
            .expect("taken");
        drop(feed);
        let answer = refused.await.expect("answered");
        is_unimplemented(&answer);
        let status = Status::from_header_map(answer.headers()).expect("a status");
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(
            status.message(),
            "unknown method /etcdserverpb.Cluster/MemberList"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_end_is_not_waited_for() {
        let (feed, body) = fed();
        let begun = tokio::time::Instant::now();
        is_unimplemented(&unknown("/x/y", body).await);
        assert_eq!(begun.elapsed(), MOMENT);
        assert!(feed.is_closed(), "nobody takes more of it");
        let (feed, body) = fed();
        let endless = tokio::spawn(async move {
            while feed.send(Frame::data(vec![0; 10_000].into())).await.is_ok() {}
        });
        is_unimplemented(&unknown("/x/y", body).await);
        endless.await.expect("broken off");
    }

    #[test]
    fn grpc_is_told_from_what_is_named_after_it() {
        let is = |kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            is_grpc(&headers)
        };
        for kind in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc;x",
        ] {
            assert!(is(kind), "{kind}");
        }
        for kind in ["application/grpc-web", "application/json", ""] {
            assert!(!is(kind), "{kind}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
