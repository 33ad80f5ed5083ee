//! Binding threads to processors. Where that cannot be done nothing is bound, and figures of threads
//! beside one another are less steady.

#[cfg(target_os = "linux")]
pub use linux::Processor;
#[cfg(not(target_os = "linux"))]
pub use unbound::Processor;

#[cfg(target_os = "linux")]
mod linux {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// A processor that a thread can be bound to.
    #[derive(Debug)]
    pub struct Processor(CpuSet);

    /// Undoes a binding when it goes.
    #[derive(Debug)]
    pub struct Bound(Option<CpuSet>);

    impl Processor {
        /// Two of those that this thread may use, if there are so many.
        #[must_use]
        pub fn two() -> [Option<Self>; 2] {
            let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
            let mut usable = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
            let (Some(one), Some(other)) = (usable.next(), usable.next()) else {
                return [None, None];
            };
            [one, other].map(|cpu| {
                let mut only = CpuSet::new();
                only.set(cpu);
                Some(Self(only))
            })
        }

        /// Binds this thread until the result goes.
        #[must_use = "unbound at once otherwise"]
        pub fn bind(self) -> Bound {
            let before = sched_getaffinity(None).ok();
            // Where the system refuses, the thread stays free.
            let _ = sched_setaffinity(None, &self.0);
            Bound(before)
        }
    }

    impl Drop for Bound {
        fn drop(&mut self) {
            if let Some(before) = &self.0 {
                let _ = sched_setaffinity(None, before);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod unbound {
    /// There is none to bind to.
    #[derive(Debug)]
    pub enum Processor {}

    impl Processor {
        /// None.
        #[must_use]
        pub fn two() -> [Option<Self>; 2] {
            [None, None]
        }

        /// Cannot be called.
        pub fn bind(self) {
            match self {}
        }
    }
}
