//! A stand-in for `pd-server services router`: lookups by the router's service, handed on to the leader.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidegate::proto::pdpb;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tonic::Status;
use tonic::body::Body;

use crate::client::connect;
use crate::error::InteropError;
use crate::pd::front::{Way, pass, serve};

/// Between two looks at who leads.
const LOOK: Duration = Duration::from_millis(200);
const SERVICE: &str = "/routerpb.Router/";

/// Runs until it is told to end.
pub async fn run(
    listen_url: &str,
    backends: &[String],
    stop: impl Future<Output = ()>,
) -> Result<(), InteropError> {
    let at: SocketAddr = listen_url
        .strip_prefix("http://")
        .and_then(|addr| addr.parse().ok())
        .ok_or_else(|| InteropError::Pd(format!("cannot listen on {listen_url}")))?;
    let listener = TcpListener::bind(at)
        .await
        .map_err(InteropError::system("listen for the router"))?;
    let way = Arc::new(RwLock::new(None::<Way>));
    let sight = Arc::clone(&way);
    let serving = serve(listener, move |request| {
        let way = sight.read().unwrap_or_else(PoisonError::into_inner).clone();
        async move {
            match way {
                Some(way) => hand_on(&way, request).await,
                None => Status::unavailable("no leader").into_http(),
            }
        }
    });
    let follow = async {
        let mut known = None;
        loop {
            let found = leader(backends).await;
            if let Some(url) = found.filter(|url| Some(url) != known.as_ref())
                && let Ok(new) = Way::to(url.clone())
            {
                *way.write().unwrap_or_else(PoisonError::into_inner) = Some(new);
                known = Some(url);
            }
            sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = follow => {}
        () = stop => {}
    }
    serving.abort();
    Ok(())
}

async fn leader(backends: &[String]) -> Option<String> {
    for url in backends {
        if let Ok(mut client) = connect(url).await
            && let Ok(answer) = client.get_members(pdpb::GetMembersRequest::default()).await
            && let Some(leader) = answer.into_inner().leader
        {
            return leader.client_urls.into_iter().next();
        }
    }
    None
}

async fn hand_on(way: &Way, mut request: http::Request<Body>) -> http::Response<Body> {
    let Some(method) = request.uri().path().strip_prefix(SERVICE) else {
        return Status::unimplemented("a router has lookups only").into_http();
    };
    let path = format!("/pdpb.PD/{method}");
    match path.parse() {
        Ok(uri) => *request.uri_mut() = uri,
        Err(_) => return Status::unimplemented("no such method").into_http(),
    }
    pass(way.channel(&path), request).await
}
