//! Questions about stores.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use prost::Message;

use super::super::stores::{Question, StoreCache};
use super::*;
use crate::proto::header::{error_header, ok_header};
use crate::proto::pdpb::{ErrorType, GetStoreRequest, GetStoreResponse, RequestHeader};

const TTL: Duration = Duration::from_secs(1);
const ONE: Question = Question::One { store_id: 1 };

fn good(store_id: u64) -> Bytes {
    let response = GetStoreResponse {
        header: Some(ok_header(CLUSTER)),
        store: Some(crate::proto::metapb::Store {
            id: store_id,
            ..Default::default()
        }),
        stats: None,
    };
    response.encode_to_vec().into()
}

/// Asks once a millisecond of the leader's time, and counts.
struct Leader {
    cache: Arc<StoreCache>,
    asked: AtomicUsize,
}

impl Leader {
    fn new(ttl: Duration) -> Arc<Self> {
        Arc::new(Self {
            cache: Arc::new(StoreCache::new(ttl)),
            asked: AtomicUsize::new(0),
        })
    }

    async fn ask(
        &self,
        question: Question,
        answer: Result<Bytes, Status>,
    ) -> Result<Bytes, Status> {
        let asking = async {
            // Relaxed: a count that is read when all is done.
            self.asked.fetch_add(1, Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
            answer
        };
        self.cache.answer(question, asking).await
    }

    fn asked(&self) -> usize {
        // Relaxed: see `ask`.
        self.asked.load(Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn many_who_ask_at_once_are_one_question_and_so_are_those_of_the_next_second() {
    let leader = Leader::new(TTL);
    let burst: Vec<_> = (0..50)
        .map(|_| {
            let leader = Arc::clone(&leader);
            tokio::spawn(async move { leader.ask(ONE, Ok(good(1))).await })
        })
        .collect();
    for answer in burst {
        assert_eq!(answer.await.expect("no panic").expect("an answer"), good(1));
    }
    assert_eq!(leader.asked(), 1);
    tokio::time::sleep(Duration::from_millis(899)).await;
    assert!(
        leader
            .ask(ONE, Ok(good(2)))
            .await
            .is_ok_and(|told| told == good(1))
    );
    assert_eq!(leader.asked(), 1);
    // It is counted from when the leader was asked, not from its answer.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(
        leader
            .ask(ONE, Ok(good(2)))
            .await
            .is_ok_and(|told| told == good(2))
    );
    // Another question is another.
    let all = Question::All {
        exclude_tombstones: true,
    };
    assert!(
        leader
            .ask(all, Ok(good(3)))
            .await
            .is_ok_and(|told| told == good(3))
    );
    assert_eq!(leader.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_error_is_for_those_who_waited_for_it() {
    let failed = GetStoreResponse {
        header: Some(error_header(
            CLUSTER,
            ErrorType::Unknown,
            "invalid store ID 1, not found",
        )),
        ..GetStoreResponse::default()
    };
    for error in [
        Err(Status::unavailable("not leader")),
        Ok(failed.encode_to_vec().into()),
    ] {
        let leader = Leader::new(TTL);
        let (one, two) =
            tokio::join!(leader.ask(ONE, error.clone()), leader.ask(ONE, Ok(good(1))),);
        assert_eq!(one.is_ok(), error.is_ok());
        assert_eq!(two.is_ok(), error.is_ok());
        assert_eq!(leader.asked(), 1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(
            leader
                .ask(ONE, Ok(good(1)))
                .await
                .is_ok_and(|told| told == good(1))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_asked_again_although_an_answer_is_on_its_way() {
    let leader = Leader::new(TTL);
    let early = tokio::spawn({
        let leader = Arc::clone(&leader);
        async move { leader.ask(ONE, Ok(good(1))).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    leader.cache.forget();
    assert!(
        leader
            .ask(ONE, Ok(good(2)))
            .await
            .is_ok_and(|told| told == good(2))
    );
    assert!(
        early
            .await
            .expect("no panic")
            .is_ok_and(|told| told == good(1))
    );
    assert!(
        leader
            .ask(ONE, Ok(good(3)))
            .await
            .is_ok_and(|told| told == good(2))
    );
    // One who gives up leaves the question to the next.
    leader.cache.forget();
    let gave_up =
        tokio::time::timeout(Duration::from_millis(1), leader.ask(ONE, Ok(good(4)))).await;
    assert!(gave_up.is_err());
    assert!(
        leader
            .ask(ONE, Ok(good(5)))
            .await
            .is_ok_and(|told| told == good(5))
    );
}

#[tokio::test]
async fn fields_that_nobody_here_knows_stay_in_the_answer_and_in_the_question() {
    let (url, mut arrived) = scripted().await;
    let gateway = gateway(PresentAs::Backend, OWN);
    leader_is(&gateway, 1, &url, 1);
    let unknown = [0xfa, 0xff, 0xff, 0xff, 0x0f, 1, 9];
    let request = GetStoreRequest {
        header: Some(RequestHeader {
            cluster_id: CLUSTER,
            ..RequestHeader::default()
        }),
        store_id: 1,
    };
    let known = request.encode_to_vec();
    let of_another_release = [&known[..], &unknown].concat();
    for (question, passed_as_it_is) in [(known, false), (of_another_release, true)] {
        let (feed, body) = fed();
        feed.send(Frame::data(message(&question)))
            .await
            .expect("taken");
        drop(feed);
        let asked = Arc::clone(&gateway).stores(
            super::super::stores::Ask::One,
            call("/routerpb.Router/GetStore", body),
        );
        let asked = tokio::spawn(asked);
        let mut at_leader = arrived.recv().await.expect("the call");
        assert_eq!(at_leader.head.uri.path(), "/pdpb.PD/GetStore");
        let got = next_data(&mut at_leader.body).await;
        assert_eq!(got == message(&question), passed_as_it_is);
        let said = [&good(1)[..], &unknown].concat();
        let (feed, body) = fed();
        at_leader.answer.send(answer(body)).expect("awaited");
        feed.send(Frame::data(message(&said))).await.expect("taken");
        let mut end = HeaderMap::new();
        end.insert("grpc-status", "0".parse().expect("ascii"));
        feed.send(Frame::trailers(end)).await.expect("taken");
        let mut answered = asked.await.expect("no panic").into_body();
        assert_eq!(next_data(&mut answered).await, message(&said));
    }
}
