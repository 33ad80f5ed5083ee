//! What goes through, both ways.

use super::*;

#[tokio::test]
async fn bytes_metadata_and_trailers_go_through_as_they_are() {
    let (url, mut arrived) = scripted().await;
    let gateway = gateway(PresentAs::Backend, OWN);
    leader_is(&gateway, 1, &url, 1);
    // No message of this program: a field number that nobody has, and a method that nobody knows.
    let unknown = [0xfa, 0xff, 0xff, 0xff, 0x0f, 3, 1, 2, 3];
    let (feed, body) = fed();
    let mut request = call("/pdpb.PD/OfAnotherRelease", body);
    let headers = request.headers_mut();
    headers.insert("grpc-timeout", "5S".parse().expect("ascii"));
    headers.insert("x-caller-bin", "AAEC".parse().expect("ascii"));
    headers.insert("pd-forwarded-host", url.parse().expect("ascii"));
    let forwarded = tokio::spawn(Arc::clone(&gateway).forward(request));

    feed.send(Frame::data(message(&unknown)))
        .await
        .expect("sent");
    drop(feed);
    let mut at_leader = arrived.recv().await.expect("the call");
    assert_eq!(at_leader.head.uri.path(), "/pdpb.PD/OfAnotherRelease");
    let got = |name: &str| at_leader.head.headers.get(name).map(HeaderValue::as_bytes);
    assert_eq!(got("grpc-timeout"), Some(&b"5S"[..]));
    assert_eq!(got("x-caller-bin"), Some(&b"AAEC"[..]));
    assert_eq!(got("pd-forwarded-host"), Some(&b""[..]));
    assert_eq!(got("te"), Some(&b"trailers"[..]));
    assert_eq!(next_data(&mut at_leader.body).await, message(&unknown));
    // The end goes through too, with an empty frame or without.
    while let Some(frame) = next(&mut at_leader.body).await {
        assert!(frame.data_ref().is_some_and(Bytes::is_empty), "{frame:?}");
    }

    let (feed, body) = fed();
    let mut response = answer(body);
    response
        .headers_mut()
        .insert("x-leader", "initial".parse().expect("ascii"));
    at_leader.answer.send(response).expect("awaited");
    let answered = forwarded.await.expect("no panic").expect("an answer");
    assert_eq!(answered.headers()["x-leader"], "initial");
    let mut body = answered.into_body();
    feed.send(Frame::data(message(&unknown)))
        .await
        .expect("sent");
    assert_eq!(next_data(&mut body).await, message(&unknown));
    let mut end = HeaderMap::new();
    end.insert("grpc-status", "9".parse().expect("ascii"));
    end.insert("grpc-message", "mismatch%20cluster".parse().expect("ascii"));
    end.insert("x-trailer", "last".parse().expect("ascii"));
    feed.send(Frame::trailers(end.clone())).await.expect("sent");
    assert_eq!(trailers(&mut body).await, end);
    assert!(next(&mut body).await.is_none());
}

#[tokio::test]
async fn both_directions_of_a_stream_flow_before_either_has_ended() {
    let (url, mut arrived) = scripted().await;
    let gateway = gateway(PresentAs::Backend, OWN);
    leader_is(&gateway, 1, &url, 1);
    let (ask, body) = fed();
    let forwarded = tokio::spawn(Arc::clone(&gateway).forward(call("/pdpb.PD/Tso", body)));
    let mut at_leader = arrived.recv().await.expect("the call, before any message");
    let (reply, body) = fed();
    at_leader.answer.send(answer(body)).expect("awaited");
    let answered = forwarded.await.expect("no panic").expect("an answer");
    let mut replies = answered.into_body();
    for round in 0..5_u8 {
        ask.send(Frame::data(message(&[round])))
            .await
            .expect("sent");
        assert_eq!(next_data(&mut at_leader.body).await, message(&[round]));
        reply
            .send(Frame::data(message(&[round, round])))
            .await
            .expect("sent");
        assert_eq!(next_data(&mut replies).await, message(&[round, round]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_read_makes_the_leader_wait() {
    const FRAME: usize = 16 << 10;
    const BOUND: usize = 16 << 20;
    let (url, mut arrived) = scripted().await;
    let gateway = gateway(PresentAs::Backend, OWN);
    leader_is(&gateway, 1, &url, 1);
    let forwarded =
        tokio::spawn(Arc::clone(&gateway).forward(call("/pdpb.PD/SyncRegions", Body::empty())));
    let at_leader = arrived.recv().await.expect("the call");
    let (feed, body) = fed();
    at_leader.answer.send(answer(body)).expect("awaited");
    let answered = forwarded.await.expect("no panic").expect("an answer");
    let mut sent = 0;
    let chunk = Bytes::from(vec![0; FRAME]);
    // An hour of virtual time passes only once nothing else moves.
    while let Ok(permit) = tokio::time::timeout(Duration::from_secs(3_600), feed.reserve()).await {
        permit.expect("read").send(Frame::data(chunk.clone()));
        sent += FRAME;
        assert!(sent < BOUND, "nothing holds the leader back");
    }
    // A reader gets all of it, and the leader may go on.
    let mut body = answered.into_body();
    let mut read = 0;
    while read < sent {
        read += next_data(&mut body).await.len();
    }
    feed.send(Frame::data(chunk)).await.expect("taken");
}
