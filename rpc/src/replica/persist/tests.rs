//! The file under crashes and failures at every point, against a model of what was committed.

use std::fs;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use redb::StorageBackend;
use tidegate_core::{Key, KeyRange, Moment, Provenance, Region, RegionEpoch, SharedEntry};

use super::disk::{Disk, DiskError, FILE, OpenError, SET_ASIDE};
use super::*;

mod loading;

/// A medium that keeps what was synced, and of the rest what chance lets through.
#[derive(Clone, Debug)]
struct Medium(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// As it reads.
    now: Vec<u8>,
    /// As it would be found after a crash in which nothing of the rest got through.
    safe: Vec<u8>,
    /// Changes since the last sync.
    unsafe_changes: Vec<Change>,
    /// Changes and syncs until one fails, and all after it.
    left: u64,
    used: u64,
    /// Reads until one fails, and all after it.
    reads_left: u64,
}

#[derive(Clone, Debug)]
enum Change {
    Length(usize),
    Bytes(usize, Vec<u8>),
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Length(length) => image.resize(*length, 0),
            Self::Bytes(at, bytes) => {
                let end = at + bytes.len();
                if image.len() < end {
                    image.resize(end, 0);
                }
                image[*at..end].copy_from_slice(bytes);
            }
        }
    }
}

impl Medium {
    fn holding(image: Vec<u8>, left: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: image.clone(),
            safe: image,
            unsafe_changes: Vec::new(),
            left,
            used: 0,
            reads_left: u64::MAX,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn use_one(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.used += 1;
        if state.left == 0 {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left"));
        }
        state.left -= 1;
        Ok(state)
    }

    /// What a crash now leaves: of the changes since the last sync some, and of one of these a part.
    fn after_a_crash(&self, rng: &mut SmallRng) -> Vec<u8> {
        let state = self.state();
        let mut image = state.safe.clone();
        for change in &state.unsafe_changes {
            match (change, rng.random_range(0..3)) {
                (_, 0) => {}
                (Change::Bytes(at, bytes), 1) => {
                    let torn = rng.random_range(0..=bytes.len());
                    Change::Bytes(*at, bytes[..torn].to_vec()).apply(&mut image);
                }
                (change, _) => change.apply(&mut image),
            }
        }
        image
    }
}

impl StorageBackend for Medium {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        if state.reads_left == 0 {
            return Err(io::Error::other("the medium does not answer"));
        }
        state.reads_left -= 1;
        let at = offset as usize;
        let bytes = state.now.get(at..at + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.use_one()?;
        let change = Change::Length(len as usize);
        change.apply(&mut state.now);
        state.unsafe_changes.push(change);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.use_one()?;
        state.safe = state.now.clone();
        state.unsafe_changes.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.use_one()?;
        let change = Change::Bytes(offset as usize, data.to_vec());
        change.apply(&mut state.now);
        state.unsafe_changes.push(change);
        Ok(())
    }
}

fn kept(next_index: u64) -> Kept {
    Kept {
        cluster_id: 7,
        mark: Mark {
            reign: Reign {
                term: Term::from_create_revision(5),
                member_id: 1,
                member_name: "pd".to_owned(),
            },
            next_index,
        },
    }
}

fn region(id: u64, start: u8, end: u8) -> Region {
    let key = |at: u8| {
        if at == 0 {
            Key::EMPTY
        } else {
            Key::from(&[at][..])
        }
    };
    let epoch = RegionEpoch {
        conf_ver: 1,
        version: id,
    };
    Region::builder(id, KeyRange::new(key(start), key(end)).unwrap(), epoch)
        .build()
        .unwrap()
}

/// A region of a random range; the end 0 is the end of all keys.
fn random_region(id: u64, rng: &mut SmallRng) -> Region {
    let start = rng.random_range(0..40);
    let end = start + rng.random_range(1..=8);
    region(id, start, if end > 40 { 0 } else { end })
}

/// The content of a file by the rule that what is put displaces what it overlaps, whole.
#[derive(Clone, Debug, Default, PartialEq)]
struct Content {
    next_index: u64,
    regions: Vec<Region>,
}

impl Content {
    fn put(&mut self, region: &Region) {
        self.regions
            .retain(|old| !old.range().overlaps(region.range()));
        self.regions.push(region.clone());
        self.regions
            .sort_by(|one, other| one.start().cmp(other.start()));
    }

    fn read(disk: &Disk, kept: Option<Kept>) -> Self {
        let mut content = Self {
            next_index: kept.map_or(0, |kept| kept.mark.next_index),
            regions: Vec::new(),
        };
        let count = disk
            .load(|regions| content.regions.extend(regions))
            .unwrap();
        assert_eq!(count, content.regions.len() as u64);
        content
    }
}

/// One step of a random life: a flush, or now and then a rewrite. The content that it aims at, and how it went.
fn step(disk: &mut Disk, at: &Content, rng: &mut SmallRng) -> (Content, Result<(), DiskError>) {
    let mut next = at.clone();
    next.next_index += rng.random_range(1..100);
    let ids = next.next_index * 100..;
    if rng.random_ratio(1, 4) {
        next.regions.clear();
        for id in ids.take(rng.random_range(0..30)) {
            next.put(&random_region(id, rng));
        }
        let provenance = Provenance::Stream {
            received_at: Moment::from_nanos(0),
        };
        let entries: Vec<SharedEntry> = next
            .regions
            .iter()
            .map(|region| shared(region, provenance))
            .collect();
        let mut pages = entries.chunks(7).map(<[SharedEntry]>::to_vec);
        let done = disk.rewrite(&kept(next.next_index), || Ok::<_, DiskError>(pages.next()));
        (next, done.map(drop))
    } else {
        let count = rng.random_range(0..12);
        let regions: Vec<Region> = ids.take(count).map(|id| random_region(id, rng)).collect();
        regions.iter().for_each(|region| next.put(region));
        let done = disk.flush(&kept(next.next_index), &[], &regions);
        (next, done.map(drop))
    }
}

fn shared(region: &Region, provenance: Provenance) -> SharedEntry {
    let map = tidegate_core::RegionMap::new();
    let _ = map.put(region.clone(), provenance);
    let snapshot = map.pin();
    snapshot.by_id(region.id()).unwrap().to_shared()
}

#[test]
fn f6_a_file_holds_what_was_put_and_no_two_records_overlap() {
    let mut rng = SmallRng::seed_from_u64(1);
    let medium = Medium::holding(Vec::new(), u64::MAX);
    let (mut disk, found) = Disk::open_in(medium.clone()).unwrap();
    assert_eq!(found, None);
    let mut content = Content::default();
    for _ in 0..300 {
        let (next, done) = step(&mut disk, &content, &mut rng);
        done.unwrap();
        content = next;
        let read = Content::read(&disk, Some(kept(content.next_index)));
        assert_eq!(read, content);
    }
    drop(disk);
    let (disk, found) = Disk::open_in(medium).unwrap();
    assert_eq!(Content::read(&disk, found), content);
}

#[test]
fn f6_a_crash_at_any_point_leaves_the_last_committed_state_or_the_one_being_committed() {
    let mut crashes = 0;
    for seed in 0..120 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut image = Vec::new();
        let mut content = Content::default();
        for _ in 0..3 {
            let left = rng.random_range(0..120);
            let medium = Medium::holding(image.clone(), left);
            // Opening writes, too, and may be where it crashes.
            let mut aimed_at = content.clone();
            if let Ok((mut disk, found)) = Disk::open_in(medium.clone()) {
                assert_eq!(Content::read(&disk, found), content, "seed {seed}");
                for _ in 0..6 {
                    let (next, done) = step(&mut disk, &content, &mut rng);
                    aimed_at = next;
                    if done.is_err() {
                        break;
                    }
                    content = aimed_at.clone();
                }
                crashes += 1;
                image = medium.after_a_crash(&mut rng);
            } else {
                image = medium.after_a_crash(&mut rng);
            }
            let (disk, found) = match Disk::open_in(Medium::holding(image.clone(), u64::MAX)) {
                Ok(opened) => opened,
                // A file whose very first write was torn has held nothing yet.
                Err(OpenError::Unusable(_)) if content == Content::default() => {
                    image = Vec::new();
                    continue;
                }
                Err(error) => panic!("seed {seed}: {error:?}"),
            };
            let read = Content::read(&disk, found);
            assert!(
                read == content || read == aimed_at,
                "seed {seed}: {read:?} is neither {content:?} nor {aimed_at:?}"
            );
            content = read;
        }
    }
    assert!(crashes > 100, "{crashes}");
}

#[test]
fn f6_a_full_disk_is_an_error_and_what_was_committed_stays() {
    let mut rng = SmallRng::seed_from_u64(3);
    let medium = Medium::holding(Vec::new(), u64::MAX);
    let (mut disk, _) = Disk::open_in(medium.clone()).unwrap();
    let (content, done) = step(&mut disk, &Content::default(), &mut rng);
    done.unwrap();
    medium.state().left = 0;
    let (_, done) = step(&mut disk, &content, &mut rng);
    assert!(done.unwrap_err().to_string().contains("no space left"));
    drop(disk);
    medium.state().left = u64::MAX;
    let (disk, found) = Disk::open_in(medium).unwrap();
    assert_eq!(Content::read(&disk, found), content);
}

#[test]
fn f6_what_is_the_same_is_not_written_again() {
    let (disk, _) = Disk::open_in(Medium::holding(Vec::new(), u64::MAX)).unwrap();
    let regions = [region(1, 0, 5), region(2, 5, 0)];
    assert_eq!(disk.flush(&kept(10), &[], &regions).unwrap(), 2);
    assert_eq!(disk.flush(&kept(11), &[], &regions).unwrap(), 0);
    assert_eq!(disk.flush(&kept(12), &[], &[region(3, 5, 0)]).unwrap(), 1);
    let gone = [Key::from(&[5][..]), Key::from(&[6][..])];
    assert_eq!(disk.flush(&kept(13), &gone, &[]).unwrap(), 1);
    let read = Content::read(&disk, Some(kept(13)));
    assert_eq!(read.regions, [region(1, 0, 5)]);
}

fn directory_with(regions: &[Region]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (disk, found) = Disk::open(directory.path()).unwrap();
    assert_eq!(found, None);
    disk.flush(&kept(10), &[], regions).unwrap();
    directory
}

#[tokio::test]
async fn f6_a_second_opening_is_refused() {
    let directory = directory_with(&[]);
    let first = Persist::open(directory.path().to_owned()).await.unwrap();
    let second = Persist::open(directory.path().to_owned()).await;
    assert!(
        matches!(second, Err(DataDirError::Taken { .. })),
        "{second:?}"
    );
    drop(first);
    Persist::open(directory.path().to_owned()).await.unwrap();
}

#[tokio::test]
async fn f6_a_directory_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "").unwrap();
    let error = Persist::open(path.clone()).await.unwrap_err();
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
}

#[tokio::test]
async fn f6_another_clusters_directory_is_told() {
    let directory = directory_with(&[]);
    let persist = Persist::open(directory.path().to_owned()).await.unwrap();
    assert_eq!(persist.check_cluster(7), Ok(()));
    let error = persist.check_cluster(8).unwrap_err();
    assert_eq!((error.kept, error.found), (7, 8));
}

#[tokio::test]
async fn f6_a_damaged_file_is_set_aside() {
    let whole = directory_with(&[region(1, 0, 5), region(2, 5, 0)]);
    let image = fs::read(whole.path().join(FILE)).unwrap();
    let mut rng = SmallRng::seed_from_u64(4);
    let mut aside = 0;
    type Damage = fn(&mut Vec<u8>, &mut SmallRng);
    let damages: [Damage; 4] = [
        |image, _| *image = b"not a database at all, but longer than nothing".to_vec(),
        |image, rng| {
            let at = rng.random_range(0..image.len());
            image.truncate(at);
        },
        |image, rng| {
            let at = rng.random_range(0..image.len());
            image[at] ^= 0x10;
        },
        |image, rng| {
            let at = rng.random_range(0..image.len() - 4096);
            image[at..at + 4096].fill(0);
        },
    ];
    for round in 0..60 {
        let directory = tempfile::tempdir().unwrap();
        let mut damaged = image.clone();
        damages[round % damages.len()](&mut damaged, &mut rng);
        fs::write(directory.path().join(FILE), &damaged).unwrap();
        let persist = Persist::open(directory.path().to_owned()).await.unwrap();
        let status = persist.status();
        if status.set_aside == 0 {
            // The damage lies where nothing is kept, or an older copy of the state is whole.
            let disk = lock(&persist.disk);
            let kept = lock(&persist.found).clone();
            let read = Content::read(disk.as_ref().unwrap(), kept);
            let ids: Vec<u64> = read.regions.iter().map(Region::id).collect();
            assert!(
                (ids == [1, 2] && read.next_index == 10) || read == Content::default(),
                "round {round}: {read:?}"
            );
            assert_eq!(persist.had_nothing, read == Content::default());
        } else {
            aside += 1;
            assert_eq!(status.errors, 1);
            assert_eq!(
                fs::read(directory.path().join(SET_ASIDE)).unwrap().len(),
                damaged.len()
            );
            assert_eq!(persist.check_cluster(8), Ok(()), "nothing is kept");
        }
    }
    assert!(aside >= 15, "{aside}");
}

#[tokio::test]
async fn f6_a_file_of_another_format_is_set_aside() {
    let directory = directory_with(&[region(1, 0, 0)]);
    let path = directory.path().join(FILE);
    let database = redb::Database::create(&path).unwrap();
    let write = database.begin_write().unwrap();
    let table = redb::TableDefinition::<&str, &[u8]>::new("state");
    let state = br#"{"format":2,"cluster_id":7,"term":5,"member_id":1,"member_name":"","next_index":1,"table":0}"#;
    write
        .open_table(table)
        .unwrap()
        .insert("state", &state[..])
        .unwrap();
    write.commit().unwrap();
    drop(database);
    let persist = Persist::open(directory.path().to_owned()).await.unwrap();
    let status = persist.status();
    assert_eq!(status.set_aside, 1);
    assert!(status.last_error.unwrap().contains("format 2"));
}
