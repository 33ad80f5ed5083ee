//! Memory of a whole map with its index by id, as the system sees it: what the allocator adds and
//! what lies idle in nodes that are not full counts as well.
//!
//! Each map is loaded in a process of its own, which knows what was resident before. Regions come
//! one by one, or in frames, in shuffled order, as a replica gets them.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::{env, fs, io};

use tidegate_core::{Key, Region};

use crate::contender::{Contender, Lock, Locked, Ours, Std};
use crate::fixture::Fixture;
use crate::round::{Row, Subject};

/// The leanest form of the rival: the index by id refers to the regions that the map by key holds.
pub const LEAN: &str = "btreemap_hashmap_shared";

/// The option under which the binary that asks is to call [`print()`].
pub const OPTION: &str = "resident-of";

type Measure = fn(&Fixture) -> io::Result<u64>;

const CONTENDERS: [(&str, Measure); 3] = [
    (Ours::NAME, |fixture| grown(fixture, Ours::load)),
    (Std::NAME, |fixture| grown(fixture, Locked::<Std>::load)),
    (LEAN, |fixture| grown(fixture, lean)),
];

/// `bytes_per_region`; the figure is in bytes.
///
/// # Errors
/// The running program cannot be started again, or the system does not tell what is resident.
pub fn bytes(fixture: &Fixture, rounds: u64) -> io::Result<Vec<Row>> {
    let program = env::current_exe()?;
    let mut rows = Vec::new();
    for (contender, _) in CONTENDERS {
        let mut samples = Vec::new();
        for _ in 0..rounds {
            let bytes = ask(&program, contender, fixture.len())?;
            samples.push(bytes as f64 / fixture.len() as f64);
        }
        samples.sort_by(f64::total_cmp);
        rows.push(Row {
            subject: Subject {
                op: "bytes_per_region",
                regions: fixture.len(),
                threads: 1,
            },
            contender,
            ns_per_op: samples[samples.len() / 2],
            spread: (samples[0], samples[samples.len() - 1]),
        });
    }
    Ok(rows)
}

/// Loads one contender and prints the bytes that it made resident.
///
/// # Errors
/// There is no such contender, or the system does not tell what is resident.
pub fn print(contender: &str, regions: usize) -> io::Result<()> {
    let known = CONTENDERS.iter().find(|(name, _)| *name == contender);
    let (_, measure) = known.ok_or_else(|| io::Error::other("no such contender"))?;
    println!("{}", measure(&Fixture::new(regions))?);
    Ok(())
}

fn ask(program: &Path, contender: &str, regions: usize) -> io::Result<u64> {
    let output = Command::new(program)
        .arg(format!("--{OPTION}={contender}"))
        .arg(format!("--regions={regions}"))
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .map_err(|_| io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn grown<M>(fixture: &Fixture, load: impl Fn(Vec<Region>) -> M) -> io::Result<u64> {
    let before = resident()?;
    let map = black_box(load(fixture.shuffled(1)));
    let after = resident()?;
    drop(map);
    Ok(after.saturating_sub(before))
}

fn lean(regions: Vec<Region>) -> impl Sized {
    let mut by_start: BTreeMap<Key, Arc<Region>> = BTreeMap::new();
    let mut by_id: HashMap<u64, Arc<Region>> = HashMap::new();
    for region in regions {
        let region = Arc::new(region);
        by_id.insert(region.id(), Arc::clone(&region));
        by_start.insert(region.start().clone(), region);
    }
    (by_start, by_id)
}

fn resident() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| io::Error::other("/proc/self/status does not tell what is resident"))
}
