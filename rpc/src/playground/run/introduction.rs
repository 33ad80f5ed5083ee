//! What is said before a run.

use super::{CYCLE, FAULT, Playground};
use crate::playground::args::{Args, GateSwitch, WhenStale};
use crate::playground::faults::Scenario;
use crate::playground::report::{explain, long_enough};

impl Playground {
    /// What a user has to know, the addresses among it. In lines of 80 columns.
    pub(super) fn introduction(&self) -> String {
        let Args {
            regions,
            churn,
            scenario,
            dialect,
            duration,
            gate,
            when_stale,
            ..
        } = &self.args;
        let mut text = format!(
            "{regions} regions, {churn} changes a second, scenario {scenario}, dialect {dialect}\n\
             keepalives, probes and thresholds run at a tenth of their real values;\n{}\n",
            explain(&self.bounds, *dialect),
        );
        text += match (gate, when_stale) {
            (GateSwitch::Off, _) => {
                "the gate is off: replicas serve whatever their maps hold, stale or not\n"
            }
            (GateSwitch::On, WhenStale::Refuse) => {
                "what may be stale is refused, so that it shows; `tidegate serve` asks the leader\n\
                 instead, as --when-stale read-through does here\n"
            }
            (GateSwitch::On, WhenStale::ReadThrough) => {
                "what may be stale is asked of the leader, as `tidegate serve` does by default\n"
            }
        };
        if self.is_fault_too_short() {
            text += &format!(
                "warning: the fault is too short to make anything stale; give --duration {}s\n",
                long_enough(self.bounds.stale_after())
            );
        }
        if duration.is_none() {
            text += "until Ctrl-C";
            if *scenario != Scenario::Steady {
                text += &format!("; the fault comes once in {CYCLE:?}");
            }
            text += "\n";
        }
        text += &format!(
            "\nPD leader  {}  (for --backend-endpoints)\n",
            self.world.url()
        );
        for replica in &self.replicas {
            let (name, url) = (replica.status().name, replica.url());
            text += &format!("{name}  {url}  (/status, /metrics)\n");
        }
        text
    }

    /// Whether a fault that lasts is over before anything turns stale.
    pub(super) fn is_fault_too_short(&self) -> bool {
        let cycle = self.args.duration.unwrap_or(CYCLE);
        let lasts = cycle * (FAULT.1 - FAULT.0) / 100;
        let can_last = matches!(self.args.scenario, Scenario::Throttle | Scenario::Stall);
        can_last && lasts < self.bounds.stale_after()
    }
}
