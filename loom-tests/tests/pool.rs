//! The pools of free memory: edits that take, use and put back, and freeing beside them.
#![cfg(tidegate_loom)]

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use loom::sync::Arc;
use loom::thread;
use tidegate_core::pool_door::Blocks;
use tidegate_loom_tests::model;

/// A pool, and the blocks that somebody holds. The set is behind a mutex that loom does not see, so
/// that it orders nothing.
struct Shared {
    blocks: Blocks,
    held: Mutex<BTreeSet<usize>>,
}

impl Shared {
    /// A pool with `blocks` blocks in it.
    fn with(blocks: usize) -> Arc<Self> {
        let shared = Self {
            blocks: Blocks::new(8),
            held: Mutex::default(),
        };
        let mut taken = shared.blocks.none();
        let fresh: Vec<usize> = (0..blocks).map(|_| taken.block()).collect();
        for block in fresh {
            taken.keep(block);
        }
        shared.blocks.give(taken);
        Arc::new(shared)
    }

    fn hold(&self, block: usize) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(held.insert(block), "a block with two owners");
    }

    fn let_go(&self, block: usize) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(held.remove(&block));
    }

    /// An edit: takes all, needs a block, gives back the rest; what it made is freed later.
    fn edit(&self) -> usize {
        let mut taken = self.blocks.take();
        let block = taken.block();
        self.hold(block);
        self.blocks.give(taken);
        block
    }

    /// The reclaimer: frees a block.
    fn free(&self, block: usize) {
        let mut freed = self.blocks.none();
        self.let_go(block);
        freed.keep(block);
        self.blocks.give(freed);
    }
}

/// Defends that a pool is taken whole by one read-modify-write, its Acquire, and the Release of a
/// push: no block has two owners, and who takes it finds its link.
#[test]
fn a_block_has_one_owner() {
    model("pool::a_block_has_one_owner", || {
        let pool = Shared::with(1);
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || {
            let block = other.edit();
            other.free(block);
        });
        let block = pool.edit();
        pool.free(block);
        thread.join().unwrap();
    });
}

/// Defends the Release of a list that is put back: an edit finds its links.
#[test]
fn what_is_put_back_is_linked() {
    model("pool::what_is_put_back_is_linked", || {
        let pool = Shared::with(1);
        let other = Arc::clone(&pool);
        // Pushes a second block, links the two in its own hands, and puts them back.
        let thread = thread::spawn(move || {
            let mut taken = other.blocks.take();
            let fresh = other.blocks.none().block();
            taken.keep(fresh);
            other.blocks.give(taken);
        });
        let first = pool.edit();
        let second = pool.edit();
        thread.join().unwrap();
        pool.free(first);
        pool.free(second);
    });
}

/// Defends the Acquire of a list that is put back and finds what was freed meanwhile: it walks over
/// the links of that.
#[test]
fn what_is_pushed_meanwhile_is_linked() {
    model("pool::what_is_pushed_meanwhile_is_linked", || {
        let pool = Shared::with(2);
        let freed = pool.blocks.none().block();
        pool.hold(freed);
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.free(freed));
        let block = pool.edit();
        thread.join().unwrap();
        pool.free(block);
        let blocks: Vec<usize> = (0..3).map(|_| pool.edit()).collect();
        for block in blocks {
            pool.free(block);
        }
    });
}
