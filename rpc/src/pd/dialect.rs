//! Which dialect of the sync stream a PD speaks.
//!
//! Releases up to 8.5, and the betas of 9.0, mark no end of a full sync, lose changes that happen during one, and may
//! answer a request for everything with a part of it. A follower that reads them as it reads PD master takes an
//! incomplete map for a complete one. Until their dialect is supported a replica must not follow them.

/// Whether a member with this `binary_version` is known to speak the dialect before master's. A version that cannot be
/// read is not known to: builds from source often have none.
#[must_use]
pub fn speaks_old_dialect(binary_version: &str) -> bool {
    let version = binary_version.trim_start_matches('v');
    if matches!(version, "9.0.0-beta.1" | "9.0.0-beta.2") {
        return true;
    }
    let major = version.split('.').next().map(str::parse::<u32>);
    // Versions below 4 are not PD's: an embedded leader has one.
    matches!(major, Some(Ok(4..=8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_up_to_8_5_and_the_betas_of_9_0_are_told_from_master() {
        for old in [
            "v5.0.0",
            "v7.5.6",
            "v8.5.3",
            "8.5.7",
            "v8.5.7-20260801-gabcdef0",
            "v9.0.0-beta.1",
        ] {
            assert!(speaks_old_dialect(old), "{old}");
        }
        for other in [
            "",
            "None",
            "v9.0.0-alpha-123-gabcdef0",
            "v9.0.0-beta.2-510-ga186e0c",
            "v9.1.0",
            "v26.3.0",
            "v0.1.0-tidegate",
        ] {
            assert!(!speaks_old_dialect(other), "{other}");
        }
    }
}
