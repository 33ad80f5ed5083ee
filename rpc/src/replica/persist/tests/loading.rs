//! A start that is cut short while it reads what was kept: the next one finds all of it.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate_core::clock::BootClock;
use tidegate_core::gate::Thresholds;

use super::*;
use crate::replica::persist::disk::LoadError;

/// More than one portion of a load.
const REGIONS: u32 = 9_000;

/// Neighbours that cover all keys.
fn regions() -> Vec<Region> {
    let key = |at: u32| match at {
        0 | REGIONS => Key::EMPTY,
        at => Key::from(&at.to_be_bytes()[..]),
    };
    let region = |at: u32| {
        let range = KeyRange::new(key(at), key(at + 1)).unwrap();
        let epoch = RegionEpoch::new(1, 1);
        Region::builder(u64::from(at) + 1, range, epoch)
            .build()
            .unwrap()
    };
    (0..REGIONS).map(region).collect()
}

/// What a start finds on this medium, and what a crash would leave after each portion that was read. `None` if the
/// medium fails before all is read.
fn start_on(medium: &Medium, rng: &mut SmallRng) -> Option<(Content, Vec<Vec<u8>>)> {
    let (disk, found) = match Disk::open_in(medium.clone()) {
        Ok(opened) => opened,
        // A medium that fails for once is no reason to give up what is on it.
        Err(OpenError::Io(_)) => return None,
        Err(error) => panic!("{error:?}"),
    };
    let (mut regions, mut crashes) = (Vec::new(), Vec::new());
    let loaded = disk.load(|portion| {
        regions.extend(portion);
        crashes.push(medium.after_a_crash(rng));
    });
    match loaded {
        Ok(_) => {
            let next_index = found.expect("kept").mark.next_index;
            // What the end of the process reads is not needed.
            medium.state().reads_left = u64::MAX;
            let content = Content {
                next_index,
                regions,
            };
            Some((content, crashes))
        }
        Err(LoadError::Disk(_)) => None,
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn f6_a_start_that_is_cut_short_at_any_read_leaves_everything_to_the_next_one() {
    let mut rng = SmallRng::seed_from_u64(8);
    let regions = regions();
    let medium = Medium::holding(Vec::new(), u64::MAX);
    let (disk, _) = Disk::open_in(medium.clone()).unwrap();
    disk.flush(&kept(10), &[], &regions).unwrap();
    // Killed, so that the next start has something to put in order.
    let image = medium.after_a_crash(&mut rng);
    drop(disk);
    let whole = Content {
        next_index: 10,
        regions,
    };
    let all_of = |image: Vec<u8>, rng: &mut SmallRng| {
        let found = start_on(&Medium::holding(image, u64::MAX), rng);
        let (content, crashes) = found.expect("a medium that answers");
        assert!(content == whole, "{} regions", content.regions.len());
        crashes
    };
    let crashes = all_of(image.clone(), &mut rng);
    assert_eq!(crashes.len(), 2, "a portion and a rest");
    for crash in crashes {
        all_of(crash, &mut rng);
    }
    let mut cuts = 0;
    loop {
        let medium = Medium::holding(image.clone(), u64::MAX);
        medium.state().reads_left = cuts;
        let got = start_on(&medium, &mut rng);
        let (crash, clean) = (medium.after_a_crash(&mut rng), medium.state().now.clone());
        // The process is gone, with or without its last word.
        all_of(crash, &mut rng);
        all_of(clean, &mut rng);
        if got.is_some() {
            break;
        }
        cuts += if cuts < 20 { 1 } else { 7 };
    }
    assert!(cuts > 100, "{cuts}");
}

#[tokio::test]
async fn f6_a_stop_while_regions_are_loaded_leaves_the_file_as_it_was() {
    let directory = directory_with(&regions());
    let path = directory.path().to_owned();
    for _ in 0..3 {
        let persist = Persist::open(path.clone()).await.unwrap();
        let shared = Arc::new(Shared::new(Arc::new(BootClock), Thresholds::default()));
        {
            let reign = kept(10).mark.reign;
            let mut load = pin!(persist.load(&shared, &reign));
            let mut nobody = Context::from_waker(Waker::noop());
            let polled = load.as_mut().poll(&mut nobody);
            assert!(
                matches!(polled, Poll::Pending),
                "it reads on another thread"
            );
        }
        // The thread goes on until it has read all; what it has read answers nothing, and there is nothing to write.
        while Arc::strong_count(&persist) > 1 {
            tokio::task::yield_now().await;
        }
        assert!(persist.journal.take().is_none());
        let thresholds = shared.thresholds.get();
        let generation = shared.map.pin().generation();
        let verdict = shared
            .gate
            .decide(generation, shared.clock.now(), &thresholds.into());
        assert!(!verdict.is_serve());
    }
    let persist = Persist::open(path).await.unwrap();
    let shared = Arc::new(Shared::new(Arc::new(BootClock), Thresholds::default()));
    let resumed = persist.load(&shared, &kept(10).mark.reign).await;
    assert_eq!(resumed, Some(10));
    assert_eq!(persist.status().loaded, u64::from(REGIONS));
    assert_eq!(
        (persist.status().set_aside, persist.status().errors),
        (0, 0)
    );
}
