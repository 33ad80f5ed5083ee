//! The judge: was an answer true of the leader's map, and how old was it?
//!
//! The age of an answer is the time from the change that superseded what was answered to the sending
//! of the request; an answer that was still true when the request was sent has no age. *Behind* is any
//! age at all. *Stale* is an age above [`Bounds::stale_after`]: what the gate's thresholds allow, plus
//! a stated allowance, for one round trip for instance. An answer that the leader's map never held, item by item and
//! as a whole, is an error, whatever its age.

use std::time::Duration;

use tidegate_core::Moment;

mod claim;
mod ledger;
mod past;
mod question;
#[cfg(test)]
mod tests;
mod words;

pub use self::claim::{Claim, Standing, were_true_together};
pub use self::ledger::{Ledger, Stamp};
pub use self::question::{Answer, Misfit, Question};

/// From which age on an answer is stale.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bounds {
    /// The gate's `max-age`.
    pub max_age: Duration,
    /// The gate's `stall-threshold`.
    pub stall_threshold: Duration,
    /// For one round trip.
    pub allowance: Duration,
}

/// What was wrong with an answer that the leader's map never held.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NeverHeld {
    /// It cannot be an answer to the question.
    Misfit(Misfit),
    /// One item was never true.
    Item(Box<Claim>),
    /// Each item was true once, but never all of them at one moment. How late each was, is told beside.
    Torn(Vec<Claim>, Verdict),
}

impl From<Misfit> for NeverHeld {
    fn from(misfit: Misfit) -> Self {
        Self::Misfit(misfit)
    }
}

/// How old one item of an answer was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lateness {
    /// From the supersession to the sending of the request. At least this, if the ledger has
    /// forgotten the rest.
    pub age: Duration,
    /// How many changes the leader had made since, that one included, when the request was sent.
    pub changes: u64,
}

/// The judgement of one answer: for each of its items, how late it was, if it was.
pub type Verdict = Vec<Option<Lateness>>;

impl Bounds {
    /// The age above which an answer is stale.
    pub fn stale_after(&self) -> Duration {
        self.max_age + self.stall_threshold + self.allowance
    }
}

impl Ledger {
    /// Judges the answer to a question that was sent at `sent`. All changes that the leader made before
    /// it answered must have been recorded.
    ///
    /// # Errors
    ///
    /// [`NeverHeld`] if the leader's map held the answer at no time.
    pub fn judge(
        &self,
        question: &Question,
        answer: Answer,
        sent: Moment,
    ) -> Result<Verdict, NeverHeld> {
        let claims = question.claims(answer)?;
        let mut judged = Vec::with_capacity(claims.len());
        for claim in claims {
            match claim.standing(self) {
                Standing::Never => return Err(NeverHeld::Item(Box::new(claim))),
                standing => judged.push((claim, standing)),
            }
        }
        let late = judged
            .iter()
            .map(|(_, standing)| self.lateness(*standing, sent))
            .collect();
        if !were_true_together(self, &judged) {
            let claims = judged.into_iter().map(|(claim, _)| claim).collect();
            return Err(NeverHeld::Torn(claims, late));
        }
        Ok(late)
    }

    fn lateness(&self, standing: Standing, sent: Moment) -> Option<Lateness> {
        let (Standing::Superseded(stamp) | Standing::Forgotten(stamp)) = standing else {
            return None;
        };
        let age = sent.saturating_since(stamp.at);
        (age > Duration::ZERO).then(|| Lateness {
            age,
            changes: self.changes_between(stamp, sent),
        })
    }
}
