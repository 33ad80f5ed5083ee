//! Calls that the leader does not end, and those that never reach it.

use super::*;

/// A call that the leader has begun to answer.
async fn open(
    gateway: &Arc<Gateway>,
    arrived: &mut mpsc::Receiver<Arrived>,
) -> (Body, mpsc::Sender<Frame<Bytes>>) {
    let forwarded = tokio::spawn(Arc::clone(gateway).forward(call("/pdpb.PD/Tso", Body::empty())));
    let at_leader = arrived.recv().await.expect("the call");
    let (feed, body) = fed();
    at_leader.answer.send(answer(body)).expect("awaited");
    let answered = forwarded.await.expect("no panic").expect("an answer");
    feed.send(Frame::data(message(b"first")))
        .await
        .expect("sent");
    let mut body = answered.into_body();
    assert_eq!(next_data(&mut body).await, message(b"first"));
    (body, feed)
}

async fn refusal(gateway: &Arc<Gateway>, request: http::Request<Body>) -> (Code, String) {
    let status = Arc::clone(gateway)
        .forward(request)
        .await
        .expect_err("turned away");
    (status.code(), status.message().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_when_another_leader_is_known_and_not_when_none_is() {
    let (url, mut arrived) = scripted().await;
    let gateway = gateway(PresentAs::Backend, OWN);
    leader_is(&gateway, 1, &url, 10);
    let (mut body, _feed) = open(&gateway, &mut arrived).await;
    gateway.shared.publish_no_leader();
    leader_is(&gateway, 1, &url, 10);
    let silence = tokio::time::timeout(Duration::from_secs(60), next(&mut body)).await;
    assert!(silence.is_err(), "the same reign goes on: {silence:?}");

    leader_is(&gateway, 2, "http://127.0.0.1:9", 11);
    let (code, text) = code_of(&trailers(&mut body).await);
    assert_eq!(code, Code::Unavailable);
    assert!(text.starts_with("not leader"), "{text}");
    assert!(next(&mut body).await.is_none());

    // The same member, elected again.
    leader_is(&gateway, 1, &url, 12);
    let (mut body, _feed) = open(&gateway, &mut arrived).await;
    leader_is(&gateway, 1, &url, 13);
    assert_eq!(code_of(&trailers(&mut body).await).0, Code::Unavailable);
    assert_eq!(gateway.counters.read().deposed, 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_a_moment_after_the_replica_was_told_to_stop() {
    let (url, mut arrived) = scripted().await;
    let gateway = gateway(PresentAs::Backend, OWN);
    leader_is(&gateway, 1, &url, 1);
    let (mut body, _feed) = open(&gateway, &mut arrived).await;
    let waiting = tokio::spawn(Arc::clone(&gateway).forward(call("/pdpb.PD/Tso", Body::empty())));
    let _unanswered = arrived.recv().await.expect("the call");
    gateway.serving.drain();
    let (code, text) = code_of(&trailers(&mut body).await);
    assert_eq!(code, Code::Unavailable);
    assert!(text.starts_with("server not started"), "{text}");
    let status = waiting
        .await
        .expect("no panic")
        .expect_err("never answered");
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_becomes_a_status() {
    let cut = CancellationToken::new();
    let (url, mut arrived) = scripted_until(cut.clone()).await;
    let gateway = gateway(PresentAs::Backend, OWN);
    leader_is(&gateway, 1, &url, 1);
    let (mut body, feed) = open(&gateway, &mut arrived).await;
    cut.cancel();
    // The server looks at the cut when it next writes.
    let _ = feed.send(Frame::data(message(b"second"))).await;
    let (code, text) = code_of(&trailers(&mut body).await);
    assert_eq!(code, Code::Unavailable, "{text}");
    assert_eq!(gateway.counters.read().broken, 1);
}

#[tokio::test]
async fn without_a_leader_and_with_one_that_is_gone_the_answer_is_unavailable() {
    let gateway = gateway(PresentAs::Backend, OWN);
    let (code, text) = refusal(&gateway, call("/pdpb.PD/AllocID", Body::empty())).await;
    assert_eq!(code, Code::Unavailable);
    assert!(text.starts_with("no leader"), "{text}");
    assert_eq!(gateway.counters.read().refused, 1);

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    leader_is(&gateway, 1, &url, 1);
    let (code, text) = refusal(&gateway, call("/pdpb.PD/AllocID", Body::empty())).await;
    assert_eq!(code, Code::Unavailable);
    assert!(
        text.starts_with("no leader") && text.contains(&url),
        "{text}"
    );
    assert_eq!(gateway.counters.read().broken, 1);
}

#[tokio::test(start_paused = true)]
async fn the_callers_deadline_holds_here_too() {
    let (url, mut arrived) = scripted().await;
    let gateway = gateway(PresentAs::Backend, OWN);
    leader_is(&gateway, 1, &url, 1);
    let mut request = call("/pdpb.PD/AllocID", Body::empty());
    request
        .headers_mut()
        .insert("grpc-timeout", "250m".parse().expect("ascii"));
    let forwarded = tokio::spawn(Arc::clone(&gateway).forward(request));
    let _unanswered = arrived.recv().await.expect("the call");
    let status = forwarded
        .await
        .expect("no panic")
        .expect_err("never answered");
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_the_call_at_the_leader() {
    let (url, mut arrived) = scripted().await;
    let gateway = gateway(PresentAs::Backend, OWN);
    leader_is(&gateway, 1, &url, 1);
    let forwarded = tokio::spawn(Arc::clone(&gateway).forward(call("/pdpb.PD/Tso", Body::empty())));
    let at_leader = arrived.recv().await.expect("the call");
    let (feed, body) = fed();
    at_leader.answer.send(answer(body)).expect("awaited");
    drop(forwarded.await.expect("no panic").expect("an answer"));
    feed.closed().await;
}

#[tokio::test]
async fn a_call_that_goes_round_in_a_circle_is_turned_away() {
    // Two replicas, each of which takes the other for the leader.
    let (one, other) = (
        gateway(PresentAs::Backend, OWN),
        gateway(PresentAs::Backend, OWN),
    );
    let served = |gateway: &Arc<Gateway>| {
        let gateway = Arc::clone(gateway);
        axum::Router::new().fallback(move |request: axum::extract::Request| async move {
            let answer = gateway.forward(request.map(Body::new)).await;
            let answer = answer.unwrap_or_else(Status::into_http);
            answer.map(axum::body::Body::new)
        })
    };
    leader_is(&one, 2, &serve(served(&other)).await, 1);
    leader_is(&other, 1, &serve(served(&one)).await, 1);
    let answered = Arc::clone(&one)
        .forward(call("/pdpb.PD/AllocID", Body::empty()))
        .await;
    let status = Status::from_header_map(answered.expect("an answer").headers());
    let status = status.expect("a status in place of an answer");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("circle"), "{}", status.message());
    assert_eq!(
        (one.counters.read().forwarded, one.counters.read().refused),
        (1, 1)
    );

    // And one that takes itself for it.
    let alone = gateway(PresentAs::Backend, OWN);
    leader_is(&alone, 1, OWN, 1);
    let (_, text) = refusal(&alone, call("/pdpb.PD/AllocID", Body::empty())).await;
    assert!(text.contains("circle"), "{text}");
}
