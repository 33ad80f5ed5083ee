//! The replicas of a run.

use std::sync::Arc;

use tidegate_core::clock::Clock;

use super::{PlaygroundError, parse};
use crate::config::ServeConfig;
use crate::playground::args::{Args, GateSwitch};
use crate::playground::faults::{Relay, Stall};
use crate::replica::Replica;
use crate::replica::hooks::{ApplyLayer, Hooks};
use crate::replica::sync::Upstream;

/// Starts two replicas of the leader, the second one behind the relay and with the apply that can be stalled; and a third
/// that follows the second, if there is to be a chain.
pub(super) async fn start(
    args: &Args,
    serve: &ServeConfig,
    leader: &str,
    clock: &Arc<dyn Clock>,
    stall: &Arc<Stall>,
    relay: &Relay,
) -> Result<Vec<Replica>, PlaygroundError> {
    let plain = || Hooks {
        serve_regardless: args.gate == GateSwitch::Off,
        clock: Some(Arc::clone(clock)),
        ..Hooks::default()
    };
    let through_relay = format!("http://{}", relay.addr());
    let struck = Hooks {
        apply_layer: Some(Arc::clone(stall) as Arc<dyn ApplyLayer>),
        redial: Some(Arc::new(move |_| through_relay.clone())),
        ..plain()
    };
    let config = |number: u8, upstreams| {
        Ok::<_, PlaygroundError>(ServeConfig {
            name: format!("replica-{number}"),
            backend_endpoints: vec![parse(leader)?],
            listen: parse("http://127.0.0.1:0")?,
            // The load knows where they are.
            register: false,
            advertise: None,
            upstreams,
            ..serve.clone()
        })
    };
    let first = Replica::start(config(1, Vec::new())?, plain()).await?;
    let second = Replica::start(config(2, Vec::new())?, struck).await?;
    let mut replicas = vec![first, second];
    if args.chain {
        let upstream = Upstream::Replica(replicas[1].url().to_owned());
        replicas.push(Replica::start(config(3, vec![upstream])?, plain()).await?);
    }
    Ok(replicas)
}
