//! What the members of a stand-in's cluster share: files in the directory that holds their data directories.
//!
//! | file | |
//! |---|---|
//! | `cluster` | the cluster's id |
//! | `member-NAME` | a member; without it the member has been removed |
//! | `lead` | locked by who leads, for as long as its process lives; name and address of the server behind it |
//! | `heir` | who is to lead next |
//! | `stores`, `regions` | what the leader was told: the stores as they are, every change of a region |

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prost::Message;
use tidegate::leader::{Change, ChangeObserver};
use tidegate::proto::convert::{leader_to_pb, region_to_pb};
use tidegate::proto::pdpb;

/// For an heir to take the lead; then anybody may.
const HEIR_LIMIT: Duration = Duration::from_secs(3);

/// The files.
#[derive(Clone, Debug)]
pub struct Table {
    dir: PathBuf,
}

/// The lead, for as long as this lives.
#[derive(Debug)]
pub struct Lead {
    file: File,
}

impl Table {
    /// The files of the cluster of which a member has its data in `data_dir`.
    pub fn of(data_dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(data_dir)?;
        let dir = data_dir.parent().unwrap_or(data_dir).to_owned();
        Ok(Self { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The cluster's id, the same for all who ask.
    pub fn cluster_id(&self) -> io::Result<u64> {
        let path = self.path("cluster");
        let own = (rand::random::<u64>() >> 1).max(1);
        let whole = self.path(&format!("cluster-{own}"));
        fs::write(&whole, own.to_string())?;
        // The first link is the one that counts, and is never seen half written.
        let _ = fs::hard_link(&whole, &path);
        fs::remove_file(whole)?;
        fs::read_to_string(path)?
            .parse()
            .map_err(|_| io::Error::other("the cluster's id is no number"))
    }

    /// Sits down.
    pub fn join(&self, member: &pdpb::Member) -> io::Result<()> {
        let path = self.path(&format!("member-{}", member.name));
        replace(&path, &member.encode_to_vec())
    }

    /// All members.
    pub fn members(&self) -> io::Result<Vec<pdpb::Member>> {
        let mut members = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("member-")
                && !name.to_string_lossy().ends_with(".new")
                && let Ok(member) = pdpb::Member::decode(&fs::read(entry.path())?[..])
            {
                members.push(member);
            }
        }
        members.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(members)
    }

    /// Takes a member away; `false` when there is none of that name.
    pub fn remove(&self, name: &str) -> bool {
        fs::remove_file(self.path(&format!("member-{name}"))).is_ok()
    }

    /// Names who is to lead next.
    pub fn bequeath(&self, name: &str) -> io::Result<()> {
        replace(&self.path("heir"), name.as_bytes())
    }

    /// Who is to lead next.
    pub fn heir(&self) -> Option<String> {
        fs::read_to_string(self.path("heir")).ok()
    }

    /// Takes the lead if nobody has it and nobody else is to have it.
    pub fn try_lead(&self, name: &str) -> io::Result<Option<Lead>> {
        let heir = self.path("heir");
        let waiting = fs::metadata(&heir)
            .and_then(|file| file.modified())
            .is_ok_and(|since| since.elapsed().is_ok_and(|age| age < HEIR_LIMIT));
        if waiting && self.heir().is_some_and(|heir| heir != name) {
            return Ok(None);
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(self.path("lead"))?;
        if file.try_lock().is_err() {
            return Ok(None);
        }
        let _ = fs::remove_file(heir);
        Ok(Some(Lead { file }))
    }

    /// Name and address of who leads, or led last.
    pub fn leader(&self) -> Option<(String, String)> {
        let text = fs::read_to_string(self.path("lead")).ok()?;
        let (name, url) = text.trim_end().split_once('\n')?;
        Some((name.to_owned(), url.to_owned()))
    }

    /// Keeps the stores.
    pub fn save_stores(&self, stores: &pdpb::GetAllStoresResponse) -> io::Result<()> {
        replace(&self.path("stores"), &stores.encode_to_vec())
    }

    /// The stores that were kept.
    pub fn stores(&self) -> Vec<tidegate::proto::metapb::Store> {
        let kept = fs::read(self.path("stores")).unwrap_or_default();
        let kept = pdpb::GetAllStoresResponse::decode(&kept[..]);
        kept.unwrap_or_default().stores
    }

    /// Every change of a region, in order. The last one may have been cut short with its leader.
    pub fn regions(&self) -> Vec<pdpb::Region> {
        let kept = fs::read(self.path("regions")).unwrap_or_default();
        let (mut rest, mut regions) = (&kept[..], Vec::new());
        while let Ok(region) = pdpb::Region::decode_length_delimited(&mut rest) {
            if rest.is_empty() && region == pdpb::Region::default() {
                break;
            }
            regions.push(region);
        }
        regions
    }

    /// Keeps the changes of a leader from when it is told to on.
    pub fn recorder(&self) -> io::Result<Recorder> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("regions"))?;
        Ok(Recorder {
            file: Mutex::new(file),
            on: AtomicBool::new(false),
        })
    }
}

impl Lead {
    /// Says who leads and where.
    pub fn announce(&mut self, name: &str, url: &str) -> io::Result<()> {
        use std::io::Seek;
        self.file.rewind()?;
        self.file.write_all(format!("{name}\n{url}\n").as_bytes())?;
        let end = self.file.stream_position()?;
        self.file.set_len(end)
    }

    /// Leaves the lead, naming nobody.
    pub fn resign(mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        let mut nothing = Vec::new();
        self.file.read_to_end(&mut nothing).map(drop)
    }
}

/// Writes what the map of a leader takes in.
#[derive(Debug)]
pub struct Recorder {
    file: Mutex<File>,
    on: AtomicBool,
}

impl Recorder {
    /// Begins to write.
    pub fn begin(&self) {
        // Relaxed: nothing is published with it.
        self.on.store(true, Ordering::Relaxed);
    }
}

impl ChangeObserver for Recorder {
    fn changed(&self, change: &Change<'_>) {
        // Relaxed: see `begin`.
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let region = pdpb::Region {
            region: Some(region_to_pb(change.put)),
            leader: leader_to_pb(change.put),
            ..Default::default()
        };
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(&region.encode_length_delimited_to_vec()) {
            eprintln!("a change was not kept: {error}");
        }
    }
}

/// Puts a file there whole.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes)?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_leads_and_the_heir_comes_next() {
        let dir = tempfile::tempdir().expect("a directory");
        let table = Table::of(&dir.path().join("pd-0")).expect("a directory");
        assert_eq!(
            table.cluster_id().expect("an id"),
            table.cluster_id().expect("an id")
        );
        let mut lead = table
            .try_lead("pd-0")
            .expect("it works")
            .expect("it is free");
        assert!(table.try_lead("pd-1").expect("it works").is_none());
        lead.announce("pd-0", "http://127.0.0.1:1000")
            .expect("room");
        lead.announce("pd-0", "http://127.0.0.1:1").expect("room");
        let told = ("pd-0".to_owned(), "http://127.0.0.1:1".to_owned());
        assert_eq!(table.leader(), Some(told));

        table.bequeath("pd-2").expect("room");
        lead.resign().expect("room");
        assert_eq!(table.leader(), None);
        assert!(table.try_lead("pd-1").expect("it works").is_none());
        assert!(table.try_lead("pd-2").expect("it works").is_some());
        assert_eq!(table.heir(), None);
        // The lock went with the value: whoever asks has it now.
        assert!(table.try_lead("pd-1").expect("it works").is_some());
    }

    #[test]
    fn members_are_those_that_were_not_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let table = Table::of(&dir.path().join("pd-0")).expect("a directory");
        for name in ["pd-1", "pd-0"] {
            let member = pdpb::Member {
                name: name.to_owned(),
                ..Default::default()
            };
            table.join(&member).expect("room");
        }
        assert!(table.remove("pd-1"));
        assert!(!table.remove("pd-1"));
        let members = table.members().expect("a directory");
        assert_eq!(members.len(), 1);
        assert_eq!(members[0].name, "pd-0");
    }
}
