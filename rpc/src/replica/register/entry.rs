//! What a registered router says of itself.

use serde::Serialize;

/// The value of a router's key.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::replica) struct Entry {
    /// The name it goes by.
    pub(in crate::replica) name: String,
    /// Where clients reach it, with the scheme.
    pub(in crate::replica) service_addr: String,
    /// The version of this program.
    pub(in crate::replica) version: String,
    /// Of which source it is; not known here.
    pub(in crate::replica) git_hash: String,
    /// Where the program lies.
    pub(in crate::replica) deploy_path: String,
    /// Unix seconds.
    pub(in crate::replica) start_timestamp: i64,
}

impl Entry {
    pub(in crate::replica) fn new(name: &str, advertise: &str, unix_seconds: i64) -> Self {
        let program = std::env::current_exe().ok();
        let directory = program.as_deref().and_then(std::path::Path::parent);
        Self {
            name: name.to_owned(),
            service_addr: advertise.to_owned(),
            version: format!("v{}-tidegate", env!("CARGO_PKG_VERSION")),
            git_hash: "None".to_owned(),
            deploy_path: directory.map_or_else(String::new, |path| path.display().to_string()),
            start_timestamp: unix_seconds,
        }
    }

    /// The key that PD's clients look for.
    pub(super) fn key(&self, cluster_id: u64) -> String {
        format!("/ms/{cluster_id}/router/registry/{}", self.service_addr)
    }

    pub(super) fn json(&self) -> Vec<u8> {
        // Text and numbers: there is nothing that JSON cannot hold.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_value_are_as_pds_clients_read_them() {
        let entry = Entry::new("tidegate-a", "http://10.0.0.1:3379", 1_700_000_000);
        assert_eq!(entry.key(7), "/ms/7/router/registry/http://10.0.0.1:3379");
        let value: serde_json::Value = serde_json::from_slice(&entry.json()).expect("JSON");
        assert_eq!(value["name"], "tidegate-a");
        assert_eq!(value["service-addr"], "http://10.0.0.1:3379");
        assert_eq!(value["start-timestamp"], 1_700_000_000);
        for name in ["version", "git-hash", "deploy-path"] {
            assert!(value[name].is_string(), "{name}");
        }
        assert_eq!(value.as_object().expect("an object").len(), 6);
    }
}
