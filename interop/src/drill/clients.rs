//! Clients that behave as stock ones do: the replica is asked first, and where it does not answer the leader is; while
//! neither does, they pause and try again within their budget. An error is what is left when the budget is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate::proto::pdpb;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use crate::client::{Found, PdClient, found};
use crate::drill::tally::{Source, Tally};
use crate::drill::world::World;
use crate::error::InteropError;
use crate::judge::About;

/// For one attempt, as stock clients have it.
const ATTEMPT: Duration = Duration::from_secs(3);
/// For a lookup with all its attempts: client-go's for PD.
const BUDGET: Duration = Duration::from_secs(40);
/// Between two attempts, when the leader has no answer either.
const PAUSE: Duration = Duration::from_millis(250);
/// Between two lookups of one client.
const REST: Duration = Duration::from_millis(4);
/// Clients that ask one by one.
const UNARY: usize = 4;
/// Keys of one batch on a stream.
const BATCH: usize = 16;

/// What all clients of a drill share.
#[derive(Debug)]
pub struct Scene {
    /// What is asked about, and who judges.
    pub world: Arc<World>,
    /// What was seen.
    pub tally: Tally,
    /// The replica.
    pub replica: String,
    /// The cluster's id.
    pub cluster_id: u64,
    leader: Mutex<String>,
    stood_still: Mutex<Option<(Instant, Instant)>>,
    stop: AtomicBool,
}

impl Scene {
    /// A scene whose clients find the leader at `leader`.
    pub fn new(
        world: Arc<World>,
        tally: Tally,
        replica: String,
        leader: String,
        cluster_id: u64,
    ) -> Self {
        Self {
            world,
            tally,
            replica,
            cluster_id,
            leader: Mutex::new(leader),
            stood_still: Mutex::new(None),
            stop: AtomicBool::new(false),
        }
    }

    /// Where the leader is from now on.
    pub fn moved(&self, leader: String) {
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner) = leader;
    }

    /// The replica stood still between these times: what it was asked meanwhile, it was asked at the end.
    pub fn stood_still(&self, from: Instant, until: Instant) {
        *self
            .stood_still
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some((from, until));
    }

    fn leader(&self) -> String {
        self.leader
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn asked(&self, sent: Instant) -> Instant {
        let stood_still = *self
            .stood_still
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match stood_still {
            Some((from, until)) if sent > from => sent.max(until),
            _ => sent,
        }
    }

    fn header(&self) -> Option<pdpb::RequestHeader> {
        Some(pdpb::RequestHeader {
            cluster_id: self.cluster_id,
            ..Default::default()
        })
    }

    /// Counts and judges an answer of the replica to a question that was sent at `sent`.
    fn answered(&self, about: &About, answer: &Found, sent: Instant, source: Source) {
        let verdict = self.world.judge(about, answer, self.asked(sent));
        self.tally.answered(source, verdict);
    }
}

/// The clients of a drill; dropping them ends them.
#[derive(Debug)]
pub struct Clients {
    scene: Arc<Scene>,
    tasks: JoinSet<()>,
}

impl Clients {
    /// Sends them out.
    pub fn start(scene: &Arc<Scene>) -> Result<Self, InteropError> {
        let mut tasks = JoinSet::new();
        for _ in 0..UNARY {
            let mut asker = Asker::new(scene)?;
            tasks.spawn(async move {
                while !asker.scene.is_over() {
                    let about = asker.scene.world.question();
                    asker.look_up(&about).await;
                    sleep(REST).await;
                }
            });
        }
        let mut asker = Asker::new(scene)?;
        tasks.spawn(async move {
            let mut stream = None;
            while !asker.scene.is_over() {
                asker.look_up_batch(&mut stream).await;
                sleep(REST).await;
            }
        });
        Ok(Self {
            scene: Arc::clone(scene),
            tasks,
        })
    }

    /// Lets each end its lookup.
    pub async fn stop(mut self) -> Result<(), InteropError> {
        // Relaxed: a flag to end by; nothing is published with it.
        self.scene.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(|e| InteropError::Verdict(format!("a client died: {e}")))?;
        }
        Ok(())
    }
}

impl Scene {
    fn is_over(&self) -> bool {
        // Relaxed: a flag to end by; nothing is published with it.
        self.stop.load(Ordering::Relaxed)
    }
}

/// One client with its connections.
#[derive(Debug)]
pub struct Asker {
    scene: Arc<Scene>,
    replica: PdClient<Channel>,
    leader: (String, PdClient<Channel>),
}

/// A stream of QueryRegion.
struct Stream {
    questions: mpsc::Sender<pdpb::QueryRegionRequest>,
    answers: Streaming<pdpb::QueryRegionResponse>,
}

impl Asker {
    /// A client with connections of its own.
    pub fn new(scene: &Arc<Scene>) -> Result<Self, InteropError> {
        let leader = scene.leader();
        Ok(Self {
            replica: dial(&scene.replica)?,
            leader: (leader.clone(), dial(&leader)?),
            scene: Arc::clone(scene),
        })
    }

    /// One question to the replica, and where the answer is from. `None` when there is none.
    pub async fn ask_replica(&mut self, about: &About) -> Option<(Found, Source)> {
        let sent = Instant::now();
        let client = self.replica.clone();
        let answer = timeout(ATTEMPT, ask(client, about, self.scene.header())).await;
        let tally = &self.scene.tally;
        match answer {
            Ok(Some((Some(answer), source))) => {
                self.scene.answered(about, &answer, sent, source);
                Some((answer, source))
            }
            Ok(_) => {
                tally.count(|figures| figures.refused += 1);
                None
            }
            Err(_) => {
                tally.count(|figures| figures.unanswered += 1);
                None
            }
        }
    }

    async fn look_up(&mut self, about: &About) {
        let begun = Instant::now();
        if self.ask_replica(about).await.is_some() {
            return self.scene.tally.ended(begun, None);
        }
        self.look_up_at_leader(about, begun).await;
    }

    async fn look_up_at_leader(&mut self, about: &About, begun: Instant) {
        self.scene.tally.count(|figures| figures.at_leader += 1);
        let mut first = true;
        while begun.elapsed() < BUDGET {
            // As client-go does: after a pause the replica is tried again, too.
            if !first && self.ask_replica(about).await.is_some() {
                return self.scene.tally.ended(begun, None);
            }
            first = false;
            let url = self.scene.leader();
            if self.leader.0 != url {
                match dial(&url) {
                    Ok(client) => self.leader = (url, client),
                    Err(error) => return self.scene.tally.ended(begun, Some(error.to_string())),
                }
            }
            let client = self.leader.1.clone();
            let answer = timeout(ATTEMPT, ask(client, about, self.scene.header())).await;
            if let Ok(Some((Some(_), _))) = answer {
                return self.scene.tally.ended(begun, None);
            }
            self.scene.tally.count(|figures| figures.backoffs += 1);
            sleep(PAUSE).await;
        }
        let error = format!("no answer about {about:?}");
        self.scene.tally.ended(begun, Some(error));
    }

    async fn look_up_batch(&mut self, stream: &mut Option<Stream>) {
        let begun = Instant::now();
        let abouts: Vec<_> = std::iter::repeat_with(|| self.scene.world.question())
            .take(BATCH)
            .collect();
        let answers = timeout(ATTEMPT, self.ask_batch(stream, &abouts)).await;
        if !matches!(answers, Ok(Some(_))) {
            *stream = None;
            self.scene.tally.count(|figures| match answers {
                Err(_) => figures.unanswered += 1,
                Ok(_) => figures.refused += 1,
            });
        }
        let answers = answers.ok().flatten().unwrap_or_default();
        for (i, about) in abouts.iter().enumerate() {
            match answers.get(i) {
                Some(Some(answer)) => {
                    self.scene.answered(about, answer, begun, Source::Stream);
                    self.scene.tally.ended(begun, None);
                }
                _ => self.look_up_at_leader(about, begun).await,
            }
        }
    }

    async fn ask_batch(
        &self,
        stream: &mut Option<Stream>,
        abouts: &[About],
    ) -> Option<Vec<Option<Found>>> {
        let mut question = pdpb::QueryRegionRequest {
            header: self.scene.header(),
            ..Default::default()
        };
        for about in abouts {
            match about {
                About::Key(key) => question.keys.push(key.clone().into()),
                About::Id(id) => question.ids.push(*id),
            }
        }
        let opened = match stream.take() {
            Some(mut opened) => {
                opened.questions.send(question).await.ok()?;
                let answer = opened.answers.message().await.ok()??;
                (opened, answer)
            }
            None => {
                let (questions, receiver) = mpsc::channel(1);
                questions.send(question).await.ok()?;
                let mut client = self.replica.clone();
                let answers = client.query_region(ReceiverStream::new(receiver)).await;
                let mut answers = answers.ok()?.into_inner();
                let answer = answers.message().await.ok()??;
                (Stream { questions, answers }, answer)
            }
        };
        let (opened, answer) = opened;
        if answer.header.as_ref()?.error.is_some() {
            return None;
        }
        *stream = Some(opened);
        let mut by_key = answer.key_id_map.iter();
        let of = |id: u64| {
            let told = answer.regions_by_id.get(&id)?;
            Some(found(told.region.clone()?, told.leader))
        };
        Some(
            abouts
                .iter()
                .map(|about| match about {
                    About::Key(_) => of(*by_key.next()?),
                    About::Id(id) => of(*id),
                })
                .collect(),
        )
    }
}

/// Asks as one that accepts a follower's answer. `None` is a refusal.
async fn ask(
    mut client: PdClient<Channel>,
    about: &About,
    header: Option<pdpb::RequestHeader>,
) -> Option<(Option<Found>, Source)> {
    let answer = match about {
        About::Key(key) => {
            let question = pdpb::GetRegionRequest {
                header,
                region_key: key.clone().into(),
                need_buckets: false,
            };
            client.get_region(allowed(question)).await
        }
        About::Id(id) => {
            let question = pdpb::GetRegionByIdRequest {
                header,
                region_id: *id,
                need_buckets: false,
            };
            client.get_region_by_id(allowed(question)).await
        }
    };
    let answer = answer.ok()?;
    let source = match answer.metadata().get("tidegate-source") {
        Some(source) if source == "map" => Source::Map {
            age: millis(answer.metadata().get("tidegate-age-ms")),
        },
        Some(source) if source == "confirmed" => Source::Confirmed,
        _ => Source::Leader,
    };
    let answer = answer.into_inner();
    if answer.header?.error.is_some() {
        return None;
    }
    let leader = answer.leader;
    Some((answer.region.map(|region| found(region, leader)), source))
}

fn millis(value: Option<&tonic::metadata::AsciiMetadataValue>) -> Duration {
    let millis = value.and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_millis(millis.unwrap_or(0))
}

fn allowed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(
        "pd-allow-follower-handle",
        tonic::metadata::MetadataValue::from_static(""),
    );
    request
}

fn dial(url: &str) -> Result<PdClient<Channel>, InteropError> {
    let channel = tonic::transport::Endpoint::from_shared(url.to_owned())
        .map_err(|e| InteropError::Leader(format!("{url}: {e}")))?
        .connect_timeout(Duration::from_secs(1))
        .tcp_nodelay(true)
        .connect_lazy();
    Ok(PdClient::new(channel))
}
