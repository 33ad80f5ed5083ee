//! `tidegate audit`: finds out who is who, compares until it is told to stop, and reports.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tonic::Code;
use url::Url;

use super::pace::Pace;
use super::report::{Report, Subject};
use super::source::{AskError, Server, Service, Source};
use super::tally::Side;
use super::walk::{Unanswered, Walk};
use crate::config::{ConfigError, SecurityConfig, parse_duration, parse_endpoint};
use crate::pd::{CallError, ChannelSettings, PdTransport, Remote, within};
use crate::proto::pdpb::{GetMembersResponse, Member};
use crate::tls::{Tls, TlsError};

/// For one call.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The share of a core of the leader that an audit may take.
const SHARE: f64 = 0.1;
/// The shortest audit whose length is not given.
const SHORTEST: Duration = Duration::from_secs(10);
/// Between two questions after one that was not answered.
const RETRY: Duration = Duration::from_millis(500);

const WORDS: &str = "\
Both are asked, page by page and in an order that lets no change in flight count; what differs is asked for again
until it is gone. An age is how long the region was seen to be behind: at least that long.
  older_epoch    a split, merge or change of peers is not known
  other_leader   another peer leads at the same epoch
  peers_differ   other peers at the same epoch
  range_differs  other keys at the same epoch: another history
  missing        other regions stand where the leader has this one
  hole           nothing stands there
  unknown_region the leader has no such region: merged or removed
  newer_epoch    newer than the leader: that is none, or has lost something
Examples name regions, not keys. Ctrl-C ends it with the report.
Exit code: 0 nothing was behind by more than --max-age, 1 something was, 2 it could not start,
3 nothing could be compared.";

/// How far a PD follower, a router or a replica is behind the PD leader.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = WORDS)]
pub struct Args {
    /// The PD leader, or any member: its leader is found
    #[arg(long, value_name = "URL")]
    pub leader: String,
    /// Who is compared with it: a PD follower, a router, a replica
    #[arg(long, value_name = "URL")]
    pub against: String,
    /// How long, as 30s or 2m [default: one pass over all regions, at least 10s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Regions a second to compare at most; the leader's answer times may make it fewer
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 10_000, value_parser = rate)]
    pub rate: u32,
    /// Behind by more than this is stale
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, default_value = "10s", value_parser = parse_duration)]
    pub max_age: Duration,
    /// PEM file of the authorities to trust, for https:// addresses
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// PEM file of our certificate
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// PEM file of our certificate's key
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The report's form
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// The report's form.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Why an audit cannot start. One line: what, and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// An address that is none.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file of TLS that cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Nobody answers, or somebody else.
    #[error("{flag}: {error}; check the address")]
    Unanswered {
        /// The flag with the address.
        flag: &'static str,
        /// What happened.
        error: AskError,
    },
    /// The PD member knows no leader.
    #[error("--leader: {url} knows no PD leader now; try again when there is one")]
    NoLeader {
        /// The member.
        url: String,
    },
    /// Both are the same server.
    #[error("--against: {url} is the PD leader itself; give a follower, a router or a replica")]
    Itself {
        /// The leader.
        url: String,
    },
}

fn rate(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(rate @ 1..=1_000_000) => Ok(rate),
        _ => Err("give a whole number from 1 to 1000000".to_owned()),
    }
}

/// PD's members as one of them tells, and what of them changes.
#[derive(Clone, Debug)]
struct Leader {
    cluster_id: u64,
    url: String,
    /// Where to ask who leads.
    members: Vec<String>,
}

/// Compares until `stop`, the duration, or the end of a pass.
///
/// # Errors
///
/// [`AuditError`]: before anything has been compared.
pub async fn run(args: Args, stop: impl Future<Output = ()>) -> Result<Report, AuditError> {
    let leader_url = text(&parse_endpoint("--leader", &args.leader)?);
    let against_url = text(&parse_endpoint("--against", &args.against)?);
    let settings = ChannelSettings {
        connect_timeout: TIMEOUT,
        ..ChannelSettings::default()
    };
    let remote = Arc::new(Remote::secured(settings, None, secrets(&args)?));
    tokio::pin!(stop);
    let found = tokio::select! {
        biased;
        () = &mut stop => None,
        found = introduce(&remote, &leader_url, &against_url) => Some(found?),
    };
    let subject = |leader: String, service: Option<Service>, cluster_id| Subject {
        leader,
        against: against_url.clone(),
        against_is: service.map_or("unknown", Service::as_str),
        cluster_id,
        max_age: args.max_age,
    };
    let begun = Instant::now();
    let Some((leader, other)) = found else {
        let (tally, tracker) = (
            super::tally::Tally::default(),
            super::track::Tracker::new(0),
        );
        return Ok(Report::new(
            subject(leader_url, None, 0),
            begun.elapsed(),
            &tally,
            &tracker,
            None,
        ));
    };
    let pace = Pace {
        share: SHARE,
        rate: args.rate,
    };
    let service = other.service();
    let cluster_id = leader.cluster_id;
    let mut audit = Audit {
        walk: Walk::new(server(&remote, &leader), other, pace),
        remote,
        leader,
        last_error: None,
    };
    tokio::select! {
        biased;
        () = &mut stop => {}
        () = audit.go(args.duration) => {}
    }
    let Audit {
        walk,
        leader,
        last_error,
        ..
    } = audit;
    let subject = subject(leader.url, Some(service), cluster_id);
    Ok(Report::new(
        subject,
        begun.elapsed(),
        &walk.tally,
        &walk.tracker,
        last_error,
    ))
}

struct Audit {
    remote: Arc<Remote>,
    leader: Leader,
    walk: Walk<Server, Server>,
    last_error: Option<String>,
}

impl Audit {
    /// Until the time is over. Cancel safe: what has been seen stays.
    async fn go(&mut self, duration: Option<Duration>) {
        let begun = Instant::now();
        loop {
            let over = match duration {
                Some(duration) => begun.elapsed() >= duration,
                None => begun.elapsed() >= SHORTEST && self.walk.passes() > 0,
            };
            if over {
                return;
            }
            let pause = match self.walk.step().await {
                Ok(pause) => pause,
                Err(unanswered) => {
                    self.note(unanswered).await;
                    RETRY
                }
            };
            let left = duration.map_or(pause, |duration| duration.saturating_sub(begun.elapsed()));
            sleep(pause.min(left)).await;
        }
    }

    async fn note(&mut self, Unanswered { side, error }: Unanswered) {
        let answers = self.walk.tally.answers(side);
        if matches!(error, AskError::Refused { .. }) {
            answers.refused += 1;
        } else {
            answers.failed += 1;
        }
        self.last_error = Some(error.to_string());
        if side == Side::Leader {
            self.find_leader().await;
        }
    }

    /// Asks the members who leads now.
    async fn find_leader(&mut self) {
        for url in self.leader.members.clone() {
            let Ok(found) = members(&self.remote, &url).await else {
                continue;
            };
            let Some(leader) = Leader::read(&found, &self.leader.url) else {
                continue;
            };
            if leader.cluster_id == self.leader.cluster_id && leader.url != self.leader.url {
                self.walk.change_leader(server(&self.remote, &leader));
                self.leader = leader;
            }
            return;
        }
    }
}

impl Leader {
    /// The leader of a member's answer, at `known` if that is one of its addresses.
    fn read(answer: &GetMembersResponse, known: &str) -> Option<Self> {
        let cluster_id = answer.header.as_ref()?.cluster_id;
        let leader = answer
            .leader
            .as_ref()
            .filter(|leader| leader.member_id != 0)?;
        let url = leader
            .client_urls
            .iter()
            .find(|url| *url == known)
            .or(leader.client_urls.first())?
            .clone();
        let urls = |member: &Member| member.client_urls.clone();
        Some(Self {
            cluster_id,
            url,
            members: answer.members.iter().flat_map(urls).collect(),
        })
    }
}

/// What `https://` addresses need.
fn secrets(args: &Args) -> Result<Option<Arc<Tls>>, TlsError> {
    let config = SecurityConfig {
        ca: args.cacert.clone(),
        cert: args.cert.clone(),
        key: args.key.clone(),
        ..SecurityConfig::default()
    };
    if !config.names_files() {
        return Ok(None);
    }
    Tls::load(config).map(Arc::new).map(Some)
}

/// Finds the leader, and what the other one is.
async fn introduce(
    remote: &Arc<Remote>,
    leader_url: &str,
    against_url: &str,
) -> Result<(Leader, Server), AuditError> {
    let unanswered = |flag| {
        move |error: CallError| AuditError::Unanswered {
            flag,
            error: error.into(),
        }
    };
    let told = members(remote, leader_url)
        .await
        .map_err(unanswered("--leader"))?;
    let leader = Leader::read(&told, leader_url).ok_or_else(|| AuditError::NoLeader {
        url: leader_url.to_owned(),
    })?;
    let refused = |flag| move |error| AuditError::Unanswered { flag, error };
    // Who answers there may be somebody else than PD says.
    let check = server(remote, &leader);
    check
        .scan(&[tidegate_core::KeyRange::all()], 1)
        .await
        .map_err(refused("--leader"))?;
    let other = |service| {
        Server::new(
            Arc::clone(remote),
            against_url.to_owned(),
            leader.cluster_id,
            service,
            TIMEOUT,
        )
    };
    let other = match members(remote, against_url).await {
        Ok(answer) => {
            let id = answer.header.as_ref().map_or(0, |header| header.cluster_id);
            if id != leader.cluster_id {
                let (url, expected) = (against_url.to_owned(), leader.cluster_id);
                return Err(refused("--against")(AskError::OtherCluster {
                    url,
                    id,
                    expected,
                }));
            }
            if leader.url == against_url {
                return Err(AuditError::Itself {
                    url: against_url.to_owned(),
                });
            }
            other(Service::Follower)
        }
        Err(CallError::Status { status, .. }) if status.code() == Code::Unimplemented => {
            let router = other(Service::Router);
            router
                .scan(&[tidegate_core::KeyRange::all()], 1)
                .await
                .map_err(refused("--against"))?;
            router
        }
        Err(error) => return Err(unanswered("--against")(error)),
    };
    Ok((leader, other))
}

async fn members(remote: &Arc<Remote>, url: &str) -> Result<GetMembersResponse, CallError> {
    within(TIMEOUT, url, remote.members(url)).await
}

fn server(remote: &Arc<Remote>, leader: &Leader) -> Server {
    Server::new(
        Arc::clone(remote),
        leader.url.clone(),
        leader.cluster_id,
        Service::Leader,
        TIMEOUT,
    )
}

/// A URL without the slash behind the port, as PD writes them.
fn text(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests;
