//! `pd-stand-in`: takes the place of a pd-server where there is none, to try out what is done with one.
//!
//! A name with `8.5` in it makes it one of release 8.5.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate::pd::Dialect;
use tidegate_interop::error::InteropError;
use tidegate_interop::standin::member::{self, Member};
use tidegate_interop::standin::router;
use tokio::signal::unix::{SignalKind, signal};

/// Takes pd-server's flags and plays one.
#[derive(Debug, Parser)]
#[command(name = "pd-stand-in", disable_version_flag = true)]
struct Args {
    /// Say which version this is, and end
    #[arg(short = 'V', long)]
    version: bool,
    #[arg(long, default_value = "pd")]
    name: String,
    #[arg(long, default_value = "default.pd")]
    data_dir: PathBuf,
    #[arg(long, default_value = "http://127.0.0.1:2379")]
    client_urls: String,
    #[arg(long)]
    advertise_client_urls: Option<String>,
    #[arg(long, default_value = "http://127.0.0.1:2380")]
    peer_urls: String,
    /// Taken, and not needed: members meet in the directory that holds their data directories
    #[arg(long)]
    initial_cluster: Option<String>,
    #[arg(long)]
    log_file: Option<PathBuf>,
    #[command(subcommand)]
    service: Option<Services>,
}

#[derive(Debug, Subcommand)]
enum Services {
    /// Run a service of its own
    Services {
        #[command(subcommand)]
        service: Service,
    },
}

#[derive(Debug, Subcommand)]
enum Service {
    /// Look regions up
    Router {
        #[arg(long)]
        name: Option<String>,
        #[arg(long, value_delimiter = ',', required = true)]
        backend_endpoints: Vec<String>,
        #[arg(long)]
        listen_addr: String,
        #[arg(long)]
        advertise_listen_addr: Option<String>,
        #[arg(long)]
        log_file: Option<PathBuf>,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let called = std::env::args().next().unwrap_or_default();
    let is_85 = PathBuf::from(called)
        .file_name()
        .is_some_and(|name| name.to_string_lossy().contains("8.5"));
    let dialect = if is_85 {
        Dialect::Release85
    } else {
        Dialect::Master
    };
    if args.version {
        println!("Release Version: none, a stand-in of {dialect}");
        return ExitCode::SUCCESS;
    }
    match run(args, dialect).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pd-stand-in: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args, dialect: Dialect) -> Result<(), InteropError> {
    // Nobody stops a stand-in that has lost who started it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(
        |e| InteropError::System {
            what: "ask to end with the parent",
            source: e.into(),
        },
    )?;
    let mut term = signal(SignalKind::terminate()).map_err(InteropError::system("hear SIGTERM"))?;
    let stop = async move {
        term.recv().await;
    };
    let log = |path: &Option<PathBuf>| match path {
        Some(path) => std::fs::write(path, format!("a stand-in of {dialect}\n"))
            .map_err(InteropError::system("write the log")),
        None => Ok(()),
    };
    match args.service {
        Some(Services::Services {
            service:
                Service::Router {
                    backend_endpoints,
                    listen_addr,
                    log_file,
                    ..
                },
        }) => {
            log(&log_file)?;
            router::run(&listen_addr, &backend_endpoints, stop).await
        }
        None => {
            log(&args.log_file)?;
            let member = Member {
                advertised: args
                    .advertise_client_urls
                    .unwrap_or_else(|| args.client_urls.clone()),
                name: args.name,
                data_dir: args.data_dir,
                client_url: args.client_urls,
                peer_url: args.peer_urls,
                dialect,
            };
            member::run(&member, stop).await
        }
    }
}
