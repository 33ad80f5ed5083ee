//! The weakenings keep up with the sources: cheap enough for every run of the tests, while running
//! the models against them (`loom-tests/weaken`) takes an hour.
#![cfg(not(tidegate_loom))]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use tidegate_loom_tests::sources::{self, Source};
use tidegate_loom_tests::weakening::{Expected, Weakening, parse};

fn weakenings() -> Vec<(String, Weakening)> {
    sources::weakenings(&sources::root()).expect("weakenings")
}

fn modelled() -> Vec<Source> {
    sources::modelled(&sources::root()).expect("sources")
}

fn models() -> BTreeSet<String> {
    sources::models(&sources::root()).expect("models")
}

#[test]
fn every_weakening_applies_and_names_models_that_exist() {
    let models = models();
    let mut names = BTreeSet::new();
    let mut wrong = Vec::new();
    for (file, weakening) in weakenings() {
        let name = format!("{file}/{}", weakening.name);
        let mut texts = BTreeMap::new();
        for edit in &weakening.edits {
            let path = sources::root().join(&edit.path);
            let text = texts
                .entry(edit.path.clone())
                .or_insert_with(|| fs::read_to_string(path).unwrap_or_default());
            match edit.apply(text) {
                Ok(new) => *text = new,
                Err(broken) => wrong.push(format!("{name}: {broken}")),
            }
        }
        let unknown = weakening
            .models
            .iter()
            .filter(|name| !models.contains(*name));
        wrong.extend(unknown.map(|model| format!("{name}: no model {model}")));
        if !names.insert(name.clone()) {
            wrong.push(format!("{name}: there twice"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whoever adds an ordering shows that a model fails without it, or why none does.
#[test]
fn every_ordering_is_weakened_and_its_comment_names_the_model() {
    let weakenings = weakenings();
    let models = models();
    let files: BTreeSet<&str> = models
        .iter()
        .filter_map(|name| Some(name.split_once("::")?.0))
        .collect();
    let mut wrong = Vec::new();
    for source in modelled() {
        let named = source.named_models(&files);
        let unknown = named.iter().filter(|model| !models.contains(*model));
        wrong.extend(
            unknown.map(|model| format!("{}: names {model}, which is no model", source.path)),
        );

        let mut defended: BTreeMap<usize, Vec<&Weakening>> = BTreeMap::new();
        for (_, weakening) in &weakenings {
            for edit in weakening
                .edits
                .iter()
                .filter(|edit| edit.path == source.path)
            {
                let Ok(place) = edit.place(&source.text) else {
                    continue;
                };
                let first = source.text[..place.start].matches('\n').count();
                let last = first + source.text[place].matches('\n').count();
                for line in first..=last {
                    defended.entry(line).or_default().push(weakening);
                }
            }
        }
        for line in source.ordering_lines() {
            let at = format!("{}:{}", source.path, line + 1);
            let Some(by) = defended.get(&line) else {
                wrong.push(format!("{at}: no weakening touches this ordering"));
                continue;
            };
            let red = by
                .iter()
                .filter(|weakening| weakening.expected == Expected::Red);
            let mut red = red.flat_map(|weakening| &weakening.models).peekable();
            if red.peek().is_some() && !red.any(|model| named.contains(model)) {
                wrong.push(format!(
                    "{at}: no comment names the model that fails without it"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_has_a_row_for_each_model_and_each_weakening() {
    let readme = fs::read_to_string(sources::root().join("loom-tests/README.md")).expect("README");
    let weakenings = weakenings();
    let rows: Vec<String> = weakenings
        .iter()
        .map(|(_, weakening)| weakening.row())
        .collect();
    let missing: Vec<&str> = rows
        .iter()
        .map(String::as_str)
        .filter(|row| !readme.contains(row))
        .collect();
    assert!(
        missing.is_empty(),
        "`loom-tests/weaken --table` prints these:\n{}",
        missing.join("\n")
    );
    let models = models();
    let missing: Vec<&String> = models
        .iter()
        .filter(|model| !readme.contains(&format!("`{model}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "not in README's first table: {missing:?}"
    );
}

/// A model that no weakening turns red may be one that cannot fail.
#[test]
fn every_model_is_turned_red_by_some_weakening() {
    let weakenings = weakenings();
    let red = weakenings
        .iter()
        .filter(|(_, weakening)| weakening.expected == Expected::Red);
    let red: BTreeSet<&String> = red.flat_map(|(_, weakening)| &weakening.models).collect();
    let models = models();
    let idle: Vec<&String> = models.iter().filter(|model| !red.contains(model)).collect();
    assert!(idle.is_empty(), "{idle:?}");
}

#[test]
fn an_edit_applies_where_its_text_is_there_once() {
    let text =
        "\n== a\nA\nred: m::a\np\n-x\n-y\n+z\n\n-q\n\n== b\nB\ngreen: m::b\nbecause: c\np\n-x\n+\n";
    let read = parse(text).expect("two weakenings");
    let [a, b] = &read[..] else {
        panic!("{read:?}");
    };
    assert_eq!(a.edits[0].apply("1x\ny2").expect("once"), "1z2");
    assert_eq!(a.edits[1].apply("1q2").expect("once"), "12");
    assert!(a.edits[1].apply("qq").is_err());
    assert!(a.edits[1].apply("").is_err());
    assert_eq!(b.expected, Expected::Green("c".to_owned()));
    assert_eq!(b.row(), "| `p` | B | none of `m::b`: c |");
    assert!(parse("\n== a\nA\nred: m::a\n").is_err());
    assert!(parse("\n== a\nA\n-x\n+y\n").is_err());
}
