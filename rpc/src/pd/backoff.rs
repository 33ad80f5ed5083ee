//! How long to wait before the next attempt: exponential, with jitter so that many replicas do not return at once.

use std::time::Duration;

use rand::Rng;

/// The first and the longest wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BackoffLimits {
    /// The first wait, before jitter.
    pub first: Duration,
    /// No wait is longer.
    pub longest: Duration,
}

impl Default for BackoffLimits {
    /// 100 ms to 3 s; PD's own followers stop growing at 3 s too.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(3),
        }
    }
}

/// Doubling waits, each drawn from the upper half of its step.
#[derive(Clone, Debug)]
pub struct Backoff {
    limits: BackoffLimits,
    step: Duration,
}

impl Backoff {
    /// Starts at the first wait.
    #[must_use]
    pub fn new(limits: BackoffLimits) -> Self {
        Self {
            limits,
            step: limits.first,
        }
    }

    /// The next wait: between half of the present step and all of it; the step then doubles.
    pub fn next_wait(&mut self, rng: &mut impl Rng) -> Duration {
        let step = self.step.min(self.limits.longest);
        self.step = step.saturating_mul(2).min(self.limits.longest);
        step.mul_f64(rng.random_range(0.5..=1.0))
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.step = self.limits.first;
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_never_fall_below_half_a_step() {
        let limits = BackoffLimits {
            first: Duration::from_millis(100),
            longest: Duration::from_millis(700),
        };
        let mut backoff = Backoff::new(limits);
        let mut rng = SmallRng::seed_from_u64(7);
        for step in [100, 200, 400, 700, 700] {
            let wait = backoff.next_wait(&mut rng);
            let step = Duration::from_millis(step);
            assert!(wait >= step / 2 && wait <= step, "{wait:?} for {step:?}");
        }
        backoff.reset();
        assert!(backoff.next_wait(&mut rng) <= limits.first);
    }

    #[test]
    fn two_replicas_draw_different_waits() {
        let limits = BackoffLimits::default();
        let mut one = SmallRng::seed_from_u64(1);
        let mut two = SmallRng::seed_from_u64(2);
        assert_ne!(
            Backoff::new(limits).next_wait(&mut one),
            Backoff::new(limits).next_wait(&mut two)
        );
    }
}
