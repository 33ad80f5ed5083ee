//! Who is synchronising: one stream for each member name.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The open streams by name.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    by_name: HashMap<String, Seat>,
    given: u64,
}

/// A stream's place under its name.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// Cancelled when another stream takes the name.
    pub(crate) taken: CancellationToken,
    /// Unlike that of any other stream of this leader.
    pub(crate) number: u64,
}

impl Registry {
    /// Takes the place of whoever had the name.
    pub(crate) fn sit(&self, name: &str) -> Seat {
        self.seats().give(name)
    }

    /// The same, unless so many others are open that it would be one more than `limit`.
    pub(crate) fn sit_within(&self, name: &str, limit: usize) -> Option<Seat> {
        let mut seats = self.seats();
        let fits = seats.by_name.len() < limit || seats.by_name.contains_key(name);
        fits.then(|| seats.give(name))
    }

    /// Gives the name up, unless another stream has it by now.
    pub(crate) fn leave(&self, name: &str, seat: &Seat) {
        let mut seats = self.seats();
        if seats
            .by_name
            .get(name)
            .is_some_and(|now| now.number == seat.number)
        {
            seats.by_name.remove(name);
        }
    }

    /// How many streams are open.
    pub(crate) fn len(&self) -> usize {
        self.seats().by_name.len()
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    fn give(&mut self, name: &str) -> Seat {
        self.given += 1;
        let seat = Seat {
            taken: CancellationToken::new(),
            number: self.given,
        };
        if let Some(former) = self.by_name.insert(name.to_owned(), seat.clone()) {
            former.taken.cancel();
        }
        seat
    }
}
