//! Looks regions up as the stock `tikv-client` crate does, at one PD endpoint, and tells what that took.
//!
//! usage: tidegate-stock-client -pd HOST:PORT -keys FILE, with keys in hex, one a line; anything else is ignored. The endpoint is a replica that
//! presents itself as PD. A client caches what it has looked up, so a new one takes over every few hundred keys; each
//! connects, takes timestamps, and reads keys, for which it looks up their regions and stores.

use std::time::{Duration, Instant};

use tikv_client::{RawClient, TransactionClient};
use tokio::time::timeout;

/// Keys of one client.
const KEYS: usize = 500;
/// Timestamps that each client takes.
const TIMESTAMPS: usize = 20;
/// For one call.
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match run().await {
        Ok(report) => {
            println!("{report}");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::from(2)
        }
    }
}

async fn run() -> Result<serde_json::Value, String> {
    let arguments: Vec<_> = std::env::args().collect();
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1))
            .ok_or_else(|| format!("{name} is missing"))
    };
    let endpoint = after("-pd")?.clone();
    let text = std::fs::read_to_string(after("-keys")?).map_err(|error| error.to_string())?;
    let keys: Vec<Vec<u8>> = text.lines().map(decode).collect::<Result<_, _>>()?;

    let (mut took, mut errors, mut first, mut timestamps) = (Vec::new(), 0, None, 0);
    let mut last = 0;
    for keys in keys.chunks(KEYS) {
        let transactions = timeout(LIMIT, TransactionClient::new(vec![endpoint.clone()]))
            .await
            .map_err(|_| "connecting takes too long".to_owned())?
            .map_err(|error| format!("connect: {error}"))?;
        for _ in 0..TIMESTAMPS {
            let now = timeout(LIMIT, transactions.current_timestamp())
                .await
                .map_err(|_| "a timestamp takes too long".to_owned())?
                .map_err(|error| format!("timestamp: {error}"))?;
            let now = (now.physical << 18) + now.logical;
            if now <= last {
                return Err(format!("timestamp {now} after {last}"));
            }
            last = now;
            timestamps += 1;
        }
        let raw = timeout(LIMIT, RawClient::new(vec![endpoint.clone()]))
            .await
            .map_err(|_| "connecting takes too long".to_owned())?
            .map_err(|error| format!("connect: {error}"))?;
        for key in keys {
            let begun = Instant::now();
            let read = timeout(LIMIT, raw.get(key.clone())).await;
            took.push(begun.elapsed());
            let error = match read {
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "too long".to_owned(),
            };
            errors += 1;
            first.get_or_insert(error);
        }
    }
    took.sort_unstable();
    let at = |share: usize| {
        took.get(took.len() * share / 100)
            .map_or(0, Duration::as_micros)
    };
    Ok(serde_json::json!({
        "lookups": took.len(), "errors": errors, "wrong": 0, "backoffs": {}, "slept_ms": 0,
        "timestamps": timestamps, "p50_us": at(50) as u64, "p99_us": at(99) as u64,
        "slowest_us": took.last().map_or(0, Duration::as_micros) as u64, "first_error": first,
    }))
}

fn decode(line: &str) -> Result<Vec<u8>, String> {
    (0..line.len())
        .step_by(2)
        .map(|at| {
            let pair = line.get(at..at + 2).ok_or("an odd number of digits")?;
            u8::from_str_radix(pair, 16).map_err(|error| error.to_string())
        })
        .collect()
}
