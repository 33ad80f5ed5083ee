//! Measures every contender in one run and writes the table.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tidegate_benches::contender::{self, Contender, Ours, Runs};
use tidegate_benches::fixture::Fixture;
use tidegate_benches::op::{
    Effort, batch, beside, bulk, decision, frames, lookup, many, marking, resident, ring, split,
    update,
};
use tidegate_benches::requirement::{Verdict, judge};
use tidegate_benches::round::Row;

const OPS: [&str; 17] = [
    "get",
    "get_many16",
    "scan64",
    "update",
    "get_beside_writer",
    "update_2w",
    "mixed_2t",
    "split_merge",
    "batch1000",
    "by_id",
    "bulk",
    "apply_frames",
    "bytes_per_region",
    "gate",
    "ring_push",
    "mark",
    "renew",
];

/// Measure every contender in one run, alternately, and write op, regions, threads, contender and
/// ns_per_op as tab-separated values.
#[derive(Debug, Parser)]
struct Options {
    /// Numbers of regions
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 1_000_000])]
    regions: Vec<usize>,
    /// Rounds that count; one more warms up
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Operations of one contender in a round
    #[arg(long, default_value_t = 100_000)]
    operations: usize,
    /// Operations to measure; get brings get_2r, bulk the sorted and the shuffled load, ring_push
    /// its row beside a reader, gate the clock, mark the confirmation, renew the renewal that writes
    #[arg(long, value_delimiter = ',', value_parser = OPS, default_values_t = OPS.map(String::from))]
    ops: Vec<String>,
    /// Contenders to measure; none means all
    #[arg(long, value_delimiter = ',')]
    contenders: Vec<String>,
    /// Where the table goes
    #[arg(long, default_value = "target/bench/table.tsv")]
    out: PathBuf,
    /// Fail unless the requirements hold
    #[arg(long)]
    require: bool,
    /// Load one contender and print what it made resident
    #[arg(long = resident::OPTION, hide = true)]
    resident_of: Option<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(contender) = &options.resident_of {
        let regions = options.regions.first().copied().unwrap_or(1);
        return match resident::print(contender, regions) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cannot measure {contender}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let rows = measure(&options);
    match report(&options, &rows) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot write {}: {error}", options.out.display());
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Vec<Row> {
    let wanted = |op: &str| options.ops.iter().any(|wanted| wanted == op);
    let effort = Effort {
        rounds: options.rounds,
        operations: options.operations,
    };
    let mut rows = Vec::new();
    for &regions in &options.regions {
        let fixture = Fixture::new(regions.max(1));
        type Run = fn(&Fixture, &[Box<dyn Runs>], Effort) -> Vec<Row>;
        let runs: [(&str, Run); 7] = [
            ("get", lookup::get),
            ("scan64", lookup::scan),
            ("update", update::update),
            ("get_beside_writer", beside::get_beside_writer),
            ("update_2w", beside::update_2w),
            ("mixed_2t", beside::mixed_2t),
            // Last: it leaves the highest epochs.
            ("split_merge", split::split_merge),
        ];
        if runs.iter().any(|(op, _)| wanted(op)) {
            eprintln!("{regions} regions: loading the contenders");
            let contenders = contender::chosen(&fixture.shuffled(1), &options.contenders);
            for (op, run) in runs {
                if wanted(op) {
                    eprintln!("{regions} regions: {op}");
                    rows.extend(run(&fixture, &contenders, effort));
                }
            }
        }
        if wanted("get_many16") {
            eprintln!("{regions} regions: get_many16");
            rows.extend(many::get_many(&fixture, effort));
        }
        if wanted("batch1000") {
            eprintln!("{regions} regions: batch1000");
            rows.extend(batch::batch(&fixture, effort));
        }
        if wanted("by_id") {
            eprintln!("{regions} regions: by_id");
            rows.extend(lookup::by_id(&fixture, effort));
        }
        if wanted("bulk") {
            eprintln!("{regions} regions: bulk_sorted, bulk_shuffled");
            rows.extend(bulk::load(&fixture, options.rounds));
        }
        if wanted("apply_frames") {
            eprintln!("{regions} regions: apply_frames");
            rows.extend(frames::apply_frames(&fixture, options.rounds));
        }
    }
    for &regions in options
        .regions
        .iter()
        .filter(|_| wanted("bytes_per_region"))
    {
        eprintln!("{regions} regions: bytes_per_region");
        match resident::bytes(&Fixture::new(regions.max(1)), options.rounds.min(3)) {
            Ok(measured) => rows.extend(measured),
            Err(error) => eprintln!("cannot measure bytes_per_region: {error}"),
        }
    }
    if wanted("gate") {
        rows.extend(decision::gate(effort));
    }
    if wanted("ring_push") {
        rows.extend(ring::push(effort));
    }
    if wanted("mark") {
        let fixture = Fixture::new(options.operations.min(10_000));
        rows.extend(marking::mark(&fixture, effort));
    }
    if wanted("renew") {
        let fixture = Fixture::new(options.operations.min(10_000));
        rows.extend(marking::renew(&fixture, effort));
    }
    rows
}

/// Writes and prints the table, and says whether the requirements hold.
fn report(options: &Options, rows: &[Row]) -> io::Result<bool> {
    if let Some(directory) = options.out.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut table = String::from("op\tregions\tthreads\tcontender\tns_per_op\n");
    for Row {
        subject,
        contender,
        ns_per_op,
        ..
    } in rows
    {
        let (op, regions, threads) = (subject.op, subject.regions, subject.threads);
        table += &format!("{op}\t{regions}\t{threads}\t{contender}\t{ns_per_op:.1}\n");
    }
    fs::write(&options.out, table)?;

    let mut out = io::stdout().lock();
    writeln!(out, "\nmachine: {}", machine())?;
    writeln!(
        out,
        "rounds: {}, the median counts; ratio: rival's time over ours\n",
        options.rounds
    )?;
    let head = [
        "op",
        "regions",
        "threads",
        "contender",
        "ns/op",
        "ratio",
        "fastest..slowest",
    ];
    writeln!(
        out,
        "{:<17} {:>8} {:>7}  {:<28} {:>10} {:>7}  {}",
        head[0], head[1], head[2], head[3], head[4], head[5], head[6]
    )?;
    for row in rows {
        let (op, regions, threads) = (row.subject.op, row.subject.regions, row.subject.threads);
        let ours = rows.iter().find(|other| {
            (other.subject.op, other.subject.regions) == (op, regions)
                && other.contender == Ours::NAME
        });
        let ratio = match ours {
            Some(ours) if row.contender != Ours::NAME => {
                format!("{:.2}x", row.ns_per_op / ours.ns_per_op)
            }
            _ => String::new(),
        };
        writeln!(
            out,
            "{op:<17} {regions:>8} {threads:>7}  {:<28} {:>10.1} {ratio:>7}  {:.1}..{:.1}",
            row.contender, row.ns_per_op, row.spread.0, row.spread.1
        )?;
    }

    let verdicts = judge(rows);
    if !verdicts.is_empty() {
        writeln!(out, "\nrequirements:")?;
    }
    for verdict in &verdicts {
        writeln!(out, "  {verdict}")?;
    }
    writeln!(out, "\ntable: {}", options.out.display())?;
    Ok(!options.require || !verdicts.iter().any(Verdict::fails))
}

/// Processor, cores and memory, as far as the system tells.
fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: BTreeSet<&str> = cpu
        .lines()
        .filter(|line| line.starts_with("model name"))
        .filter_map(|line| line.split_once(": "))
        .map(|(_, model)| model)
        .collect();
    let model = models.into_iter().collect::<Vec<_>>().join(", ");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let gib = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib >> 20);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("unknown");
    let arch = std::env::consts::ARCH;
    format!("{model} ({arch}), {cores} cores, {gib} GiB, load {load} at the end")
}
