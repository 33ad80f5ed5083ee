//! Settings that can be changed while the replica runs, by the admin address or by a reload of the file.

use std::collections::HashSet;

use serde_json::Value;

use super::file::{DERIVED, set};
use super::shown::entries;
use super::{ConfigError, Parsed, sense};

/// The keys that take effect at once. All others need a start.
pub const CHANGEABLE: &[&str] = &[
    "max-age",
    "broadcast-max-age",
    "max-outage",
    "time-threshold",
    "index-threshold",
    "stall-threshold",
    "audit-pass",
    "audit-grace",
    "log.level",
];

/// Why settings were not changed: each thing that is wrong, in a line of its own.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Unchanged(pub Vec<String>);

/// A change of settings.
#[derive(Clone, Debug)]
pub struct Change {
    /// The keys with another value than before; that of one may follow another's.
    pub changed: Vec<&'static str>,
    /// What is unwise now and was not before.
    pub warnings: Vec<String>,
}

/// Changes some settings: `patch` is an object as PD's `POST /config` takes it, with keys that have
/// their tables before them (`log.level`) or stand in them. Changes all or nothing.
///
/// # Errors
///
/// [`Unchanged`]: keys that nobody knows, keys that need a start, values that their keys cannot have, settings that
/// contradict each other.
pub fn patch(current: &mut Parsed, patch: &Value) -> Result<Change, Unchanged> {
    let Value::Object(_) = patch else {
        return Err(Unchanged(vec![
            "not a JSON object; give one, as {\"max-age\": \"5s\"}".to_owned(),
        ]));
    };
    let mut leaves = Vec::new();
    flatten("", patch, &mut leaves);
    if let Some(key) = twice(&leaves) {
        return Err(Unchanged(vec![format!("{key}: given twice; give it once")]));
    }
    let known = entries(current);
    let mut next = current.clone();
    let mut wrong = Vec::new();
    for (key, value) in leaves {
        if !known.iter().any(|(name, _)| *name == key) {
            wrong.push(format!(
                "{key}: no such setting; those that can be changed are {}",
                CHANGEABLE.join(", ")
            ));
        } else if !CHANGEABLE.contains(&key.as_str()) {
            wrong.push(format!(
                "{key}: cannot be changed while running; set it in the file and start again"
            ));
        } else if let Err(error) = put(&key, value, &mut next) {
            wrong.push(error.to_string());
        }
    }
    if wrong.is_empty()
        && let Err(error) = next.check()
    {
        wrong.push(error.to_string());
    }
    if !wrong.is_empty() {
        return Err(Unchanged(wrong));
    }
    // Whole settings are compared, not those that were named: the value of one may follow another's. Whether one does
    // is a change, too.
    let derives = |parsed: &Parsed| parsed.serve.broadcast_max_age.is_none();
    let changed = known
        .into_iter()
        .zip(entries(&next))
        .filter(|(old, new)| {
            old != new || (old.0 == "broadcast-max-age" && derives(current) != derives(&next))
        })
        .map(|((key, _), _)| key)
        .collect();
    let (before, now) = (sense::unwise(current), sense::unwise(&next));
    let warnings = now.iter().filter(|said| !before.contains(said)).cloned();
    let warnings = warnings.collect();
    next.warnings.retain(|said| !before.contains(said));
    next.warnings.extend(now);
    *current = next;
    Ok(Change { changed, warnings })
}

/// Takes from `new` what can be changed, if what that leads to can be. Tells what was and what is unwise about it, and the
/// keys that would need a start.
///
/// # Errors
///
/// [`ConfigError`]: what can be changed contradicts what cannot, as the file has it. Then nothing is changed.
pub fn take_over(
    current: &mut Parsed,
    new: &Parsed,
) -> Result<(Change, Vec<&'static str>), ConfigError> {
    let (mut changed, mut fixed) = (Vec::new(), Vec::new());
    let mut next = current.clone();
    // What is shown is what it comes to; whether it was said, or follows max-age, is taken over as it is.
    next.serve.broadcast_max_age = new.serve.broadcast_max_age;
    for ((key, old), (_, value)) in entries(current).into_iter().zip(entries(new)) {
        if old == value {
            continue;
        }
        if key == "broadcast-max-age"
            || (CHANGEABLE.contains(&key) && put(key, &value, &mut next).is_ok())
        {
            changed.push(key);
        } else {
            fixed.push(key);
        }
    }
    next.check()?;
    let fresh = |said: &&String| !current.warnings.contains(said);
    let warnings = new.warnings.iter().filter(fresh).cloned().collect();
    next.warnings.clone_from(&new.warnings);
    *current = next;
    Ok((Change { changed, warnings }, fixed))
}

fn put(key: &str, value: &Value, parsed: &mut Parsed) -> Result<(), ConfigError> {
    let unusable =
        || ConfigError::value(key, value.to_string(), "a value as the config file has it");
    let value = match value {
        // Given back to what it comes to by itself.
        Value::Null if key == "broadcast-max-age" => DERIVED.into(),
        Value::Null if key == "max-outage" => "max-age".into(),
        // A number that TOML does not have is for its key to refuse.
        Value::Number(number) if !number.is_i64() => toml::Value::String(number.to_string()),
        _ => toml::Value::try_from(value).map_err(|_| unusable())?,
    };
    match set(key, &value, parsed)? {
        true => Ok(()),
        false => Err(unusable()),
    }
}

/// A key that is there both with its table in its name and in its table.
fn twice<'k>(leaves: &'k [(String, &Value)]) -> Option<&'k str> {
    let mut seen = HashSet::new();
    let mut keys = leaves.iter().map(|(key, _)| key.as_str());
    keys.find(|key| !seen.insert(*key))
}

fn flatten<'v>(prefix: &str, value: &'v Value, leaves: &mut Vec<(String, &'v Value)>) {
    let Value::Object(table) = value else { return };
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}.{name}")
        };
        match value {
            Value::Object(inner) if !inner.is_empty() => flatten(&key, value, leaves),
            _ => leaves.push((key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::{LogLevel, Overrides, PresentAs, WhenStale, load};
    use super::*;

    fn defaults() -> Parsed {
        load(&Overrides::default(), None).expect("defaults")
    }

    fn patched(change: Value) -> Result<(Parsed, Change), Unchanged> {
        let mut parsed = defaults();
        let change = patch(&mut parsed, &change)?;
        Ok((parsed, change))
    }

    #[test]
    fn what_can_be_changed_is_changed_in_either_form() {
        let patch = json!({"max-age": "5s", "index-threshold": 7, "audit-pass": "off", "log": {"level": "warn"}});
        let (next, change) = patched(patch).expect("good");
        assert_eq!(
            change.changed,
            ["max-age", "index-threshold", "audit-pass", "log.level"]
        );
        assert_eq!(next.serve.max_age, Duration::from_secs(5));
        assert_eq!(
            (next.serve.index_threshold, next.serve.audit.pass),
            (7, None)
        );
        assert_eq!(next.log.level, LogLevel::Warn);
        let (dotted, _) = patched(json!({"log.level": "warn"})).expect("good");
        assert_eq!(dotted.log.level, LogLevel::Warn);
    }

    #[test]
    fn what_is_wrong_is_named_and_nothing_is_changed() {
        let wrong = |patch| patched(patch).expect_err("wrong").0;
        let lines = wrong(
            json!({"max-aeg": "5s", "name": "x", "max-age": 5, "stall-threshold": null, "time-threshold": "4s"}),
        );
        assert_eq!(lines.len(), 4, "{lines:?}");
        for key in [
            "max-aeg: no such setting",
            "name: cannot be changed",
            "max-age: ",
            "stall-threshold: ",
        ] {
            assert!(
                lines.iter().any(|line| line.starts_with(key)),
                "{key} in {lines:?}"
            );
        }
        // Below the interval of probes.
        assert!(wrong(json!({"max-age": "1s"}))[0].contains("probe-interval"));
        assert!(wrong(json!([1]))[0].contains("JSON object"));
    }

    #[test]
    fn a_reload_takes_what_it_can_and_tells_what_it_cannot() {
        let mut current = defaults();
        let mut new = defaults();
        new.serve.max_age = Duration::from_secs(20);
        new.serve.audit.pass = None;
        new.serve.name = "another".to_owned();
        let name = current.serve.name.clone();
        let (change, fixed) = take_over(&mut current, &new).expect("good");
        assert_eq!(
            (change.changed, fixed),
            (vec!["max-age", "audit-pass"], vec!["name"])
        );
        assert_eq!(current.serve.max_age, Duration::from_secs(20));
        assert_eq!(current.serve.name, name);
        let (change, fixed) = take_over(&mut current, &new).expect("good");
        assert_eq!((change.changed, fixed), (vec![], vec!["name"]));
    }

    #[test]
    fn a_reload_that_only_a_start_would_make_sound_changes_nothing() {
        let mut current = defaults();
        let mut new = defaults();
        new.serve.probe_interval = Duration::from_millis(500);
        new.serve.max_age = Duration::from_secs(2);
        new.serve.stall_threshold = Duration::from_secs(4);
        new.check().expect("sound by itself");
        // The interval stays at 3s until a start.
        let error = take_over(&mut current, &new)
            .expect_err("unsound")
            .to_string();
        assert!(
            error.contains("probe-interval 3s (the default) is not below max-age 2s"),
            "{error}"
        );
        assert_eq!(current.serve, defaults().serve);
    }

    #[test]
    fn the_age_allowed_on_release_85_follows_max_age_by_either_way_until_it_is_set() {
        let mut parsed = defaults();
        let mut age = |change: Value| {
            let change = patch(&mut parsed, &change).expect("good");
            (parsed.serve.broadcast_max_age().as_secs(), change)
        };
        let (seconds, change) = age(json!({"max-age": "15s"}));
        assert_eq!((seconds, &change.changed[..]), (30, &["max-age"][..]));
        assert_eq!(change.warnings, [""; 0]);
        let (seconds, change) = age(json!({"max-age": "45s"}));
        let both = ["max-age", "broadcast-max-age"];
        assert_eq!((seconds, &change.changed[..]), (45, &both[..]));
        assert_eq!(age(json!({"max-age": "10s"})).0, 30, "and back");
        // By the file: the same, and what was set over HTTP is gone.
        let (seconds, change) = age(json!({"broadcast-max-age": "12s"}));
        assert_eq!(seconds, 12);
        assert!(
            change.warnings[0].contains("less than 25s"),
            "{:?}",
            change.warnings
        );
        assert_eq!(age(json!({"max-age": "45s"})).0, 12, "set is set");
        for (max_age, seconds) in [(12, 30), (60, 60), (10, 30)] {
            let mut file = defaults();
            file.serve.max_age = Duration::from_secs(max_age);
            take_over(&mut parsed, &file).expect("good");
            assert_eq!(parsed.serve.max_age.as_secs(), max_age);
            assert_eq!(parsed.serve.broadcast_max_age().as_secs(), seconds);
        }
    }

    #[test]
    fn a_reload_tells_what_would_be_unwise_after_a_start_and_what_is_in_effect_is_another_matter() {
        let mut current = defaults();
        let mut new = defaults();
        new.serve.present_as = PresentAs::Me;
        new.serve.allow_bounded_staleness = true;
        new.serve.when_stale = WhenStale::Refuse;
        new.serve.max_outage = Some(Duration::from_secs(720_000));
        new.warnings = new.unwise();
        let (change, fixed) = take_over(&mut current, &new).expect("good");
        assert_eq!(change.changed, ["max-outage"]);
        assert_eq!(
            fixed,
            ["when-stale", "present-as", "allow-bounded-staleness"]
        );
        assert_eq!(change.warnings, new.unwise());
        assert_eq!(
            current.unwise(),
            new.unwise()[..1],
            "the rest needs a start"
        );
    }

    #[test]
    fn what_follows_another_can_be_given_back_to_it() {
        let mut parsed = defaults();
        let mut changed = |change: Value| patch(&mut parsed, &change).expect("good").changed;
        let both = ["broadcast-max-age", "max-outage"];
        let set = changed(json!({"broadcast-max-age": "40s", "max-outage": "1m"}));
        assert_eq!(set, both);
        let back = changed(json!({"broadcast-max-age": null, "max-outage": null}));
        assert_eq!(back, both);
        // The value is the same, and is one that follows no more.
        assert_eq!(changed(json!({"broadcast-max-age": "30s"})), both[..1]);
        assert_eq!(changed(json!({"broadcast-max-age": "30s"})), [""; 0]);
        assert_eq!(changed(json!({"broadcast-max-age": "auto"})), both[..1]);
        assert_eq!(changed(json!({"max-age": "45s"})), ["max-age", both[0]]);
        assert_eq!(parsed.serve.broadcast_max_age().as_secs(), 45);
        assert_eq!(parsed.serve.max_outage, None);
    }

    #[test]
    fn a_key_that_is_given_in_both_forms_is_named_and_changes_nothing() {
        let twice = json!({"log.level": "warn", "log": {"level": "error"}, "max-age": "5s"});
        let wrong = patched(twice).expect_err("twice");
        assert_eq!(wrong.0, ["log.level: given twice; give it once"]);
    }

    #[test]
    fn a_change_tells_what_is_unwise_about_it_once() {
        let mut parsed = defaults();
        let mut warnings = |change: Value| patch(&mut parsed, &change).expect("good").warnings;
        let said = warnings(json!({"max-age": "5s"}));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("one lost probe"), "{said:?}");
        let said = warnings(json!({"audit-grace": "200ms"}));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("audit-grace"), "{said:?}");
        assert_eq!(warnings(json!({"log.level": "debug"})), [""; 0]);
        assert_eq!(parsed.warnings.len(), 2, "{:?}", parsed.warnings);
        // A reload that keeps one of them.
        let mut file = defaults();
        file.serve.max_age = Duration::from_secs(5);
        file.warnings = sense::unwise(&file);
        let (change, _) = take_over(&mut parsed, &file).expect("good");
        assert_eq!(change.changed, ["audit-grace", "log.level"]);
        assert_eq!(change.warnings, [""; 0]);
        assert_eq!(parsed.warnings, file.warnings);
        let nothing = patch(&mut parsed, &json!({})).expect("good");
        assert!(nothing.changed.is_empty() && nothing.warnings.is_empty());
    }

    #[test]
    fn a_number_beyond_every_bound_is_refused() {
        let wrong = patched(json!({"index-threshold": u64::MAX})).expect_err("huge");
        assert_eq!(
            wrong.to_string(),
            "index-threshold: \"18446744073709551615\" cannot be used; give a whole number of changes from 1 to \
             1000000000"
        );
    }

    #[test]
    fn every_key_that_can_be_changed_is_one_that_is_shown() {
        let parsed = defaults();
        let known: Vec<&str> = entries(&parsed).into_iter().map(|(key, _)| key).collect();
        assert!(CHANGEABLE.iter().all(|key| known.contains(key)));
        // And what is shown can be put back.
        for (key, value) in entries(&parsed)
            .into_iter()
            .filter(|(key, _)| CHANGEABLE.contains(key))
        {
            put(key, &value, &mut parsed.clone()).expect(key);
        }
    }
}
