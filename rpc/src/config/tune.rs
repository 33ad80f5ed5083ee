//! Settings that can be changed while the replica runs, by the admin address or by a reload of the file.

use serde_json::Value;

use super::file::set;
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

/// The settings after a change of some: `patch` is an object as PD's `POST /config` takes it, with keys that have
/// their tables before them (`log.level`) or stand in them. Changes all or nothing.
///
/// # Errors
///
/// [`Unchanged`]: keys that nobody knows, keys that need a start, values that their keys cannot have, settings that
/// contradict each other.
pub fn patched(current: &Parsed, patch: &Value) -> Result<Parsed, Unchanged> {
    let Value::Object(_) = patch else {
        return Err(Unchanged(vec![
            "not a JSON object; give one, as {\"max-age\": \"5s\"}".to_owned(),
        ]));
    };
    let mut leaves = Vec::new();
    flatten("", patch, &mut leaves);
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
    if wrong.is_empty() {
        next.warnings = sense::unwise(&next);
        Ok(next)
    } else {
        Err(Unchanged(wrong))
    }
}

/// Takes from `new` what can be changed, if what that leads to can be. Tells the keys that were, and those that would need
/// a start.
///
/// # Errors
///
/// [`ConfigError`]: what can be changed contradicts what cannot, as the file has it. Then nothing is changed.
pub fn take_over(
    current: &mut Parsed,
    new: &Parsed,
) -> Result<(Vec<&'static str>, Vec<&'static str>), ConfigError> {
    let (mut changed, mut fixed) = (Vec::new(), Vec::new());
    let mut next = current.clone();
    for ((key, old), (_, value)) in entries(current).into_iter().zip(entries(new)) {
        if old == value {
            continue;
        }
        if CHANGEABLE.contains(&key) && put(key, &value, &mut next).is_ok() {
            changed.push(key);
        } else {
            fixed.push(key);
        }
    }
    next.check()?;
    *current = next;
    Ok((changed, fixed))
}

fn put(key: &str, value: &Value, parsed: &mut Parsed) -> Result<(), ConfigError> {
    let unusable =
        || ConfigError::value(key, value.to_string(), "a value as the config file has it");
    let value = match value {
        // A number that TOML does not have is for its key to refuse.
        Value::Number(number) if !number.is_i64() => toml::Value::String(number.to_string()),
        _ => toml::Value::try_from(value).map_err(|_| unusable())?,
    };
    match set(key, &value, parsed)? {
        true => Ok(()),
        false => Err(unusable()),
    }
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

    use super::super::{LogLevel, Overrides, load};
    use super::*;

    fn defaults() -> Parsed {
        load(&Overrides::default(), None).expect("defaults")
    }

    #[test]
    fn what_can_be_changed_is_changed_in_either_form() {
        let patch = json!({"max-age": "5s", "index-threshold": 7, "audit-pass": "off", "log": {"level": "warn"}});
        let next = patched(&defaults(), &patch).expect("good");
        assert_eq!(next.serve.max_age, Duration::from_secs(5));
        assert_eq!(
            (next.serve.index_threshold, next.serve.audit.pass),
            (7, None)
        );
        assert_eq!(next.log.level, LogLevel::Warn);
        let dotted = patched(&defaults(), &json!({"log.level": "warn"})).expect("good");
        assert_eq!(dotted.log.level, LogLevel::Warn);
    }

    #[test]
    fn what_is_wrong_is_named_and_nothing_is_changed() {
        let wrong = |patch| patched(&defaults(), &patch).expect_err("wrong").0;
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
        assert_eq!(
            take_over(&mut current, &new).expect("good"),
            (
                vec!["max-age", "broadcast-max-age", "audit-pass"],
                vec!["name"]
            )
        );
        assert_eq!(current.serve.max_age, Duration::from_secs(20));
        assert_eq!(
            current.serve.broadcast_max_age(),
            Duration::from_secs(20),
            "chosen for every leader"
        );
        assert_eq!(current.serve.name, name);
        assert_eq!(
            take_over(&mut current, &new).expect("good"),
            (vec![], vec!["name"])
        );
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
    fn a_change_tells_what_is_unwise_about_it() {
        let patch = json!({"max-age": "5s"});
        let warnings = patched(&defaults(), &patch).expect("good").warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("one lost probe"), "{warnings:?}");
        let wrong = patched(&defaults(), &json!({"index-threshold": u64::MAX})).expect_err("huge");
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
