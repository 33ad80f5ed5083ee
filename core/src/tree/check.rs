//! What must hold in every tree, for tests.

use super::node::NodeRef;
use super::size::Size;
use super::{Tree, TreeRef};
use crate::key::Key;

/// What the walk has counted.
#[derive(Default)]
struct Count {
    len: usize,
    size: Size,
    leaf_depth: Option<usize>,
}

impl TreeRef<'_> {
    /// Checks order, heads, separators, depth and the counts of `tree`, which
    /// this is a view of.
    pub(crate) fn check(self, tree: &Tree) -> Result<(), String> {
        let mut count = Count::default();
        if let Some(root) = self.root() {
            check_node(root, 0, None, None, &mut count)?;
        }
        if count.len != tree.len() {
            return Err(format!(
                "{} regions are counted as {}",
                count.len,
                tree.len()
            ));
        }
        if count.size != tree.size() {
            let (found, counted) = (count.size, tree.size());
            return Err(format!("a tree of {found:?} is counted as {counted:?}"));
        }
        Ok(())
    }
}

fn check_node(
    node: NodeRef<'_>,
    depth: usize,
    lower: Option<&Key>,
    upper: Option<&Key>,
    count: &mut Count,
) -> Result<(), String> {
    match node {
        NodeRef::Leaf(leaf) => {
            count.size.leaves += 1;
            count.len += leaf.len();
            if *count.leaf_depth.get_or_insert(depth) != depth {
                return Err("leaves are at different depths".into());
            }
            if leaf.len() == 0 {
                return Err("a leaf is empty".into());
            }
            leaf.check_heads()?;
            let (first, last) = (leaf.entry(0), leaf.entry(leaf.len() - 1));
            if lower.is_some_and(|lower| first.start() < lower) {
                return Err(format!("region {} is left of its leaf", first.id()));
            }
            if upper.is_some_and(|upper| last.start() >= upper) {
                return Err(format!("region {} is right of its leaf", last.id()));
            }
        }
        NodeRef::Inner(inner) => {
            count.size.inners += 1;
            (0..inner.len()).for_each(|place| count.size.add_separator(inner.separator(place)));
            if depth == 0 && inner.len() == 0 {
                return Err("the root has a single child".into());
            }
            inner.check_heads()?;
            for place in 0..=inner.len() {
                let lower = place
                    .checked_sub(1)
                    .map(|left| inner.separator(left))
                    .or(lower);
                let upper = (place < inner.len())
                    .then(|| inner.separator(place))
                    .or(upper);
                check_node(inner.child_ref(place), depth + 1, lower, upper, count)?;
            }
        }
    }
    Ok(())
}
