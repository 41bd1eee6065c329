//! What a manifest states, for the one container of its pod.

use serde_json::Value;
use support::source_path;

/// A kind of volume, with what the test provides for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volume {
    /// Anybody may write to it.
    Empty,
    /// The group of the pod may write to it.
    Claim,
    /// The group of the pod may read it.
    Secret,
}

/// A pod template with one container.
#[derive(Clone, Debug)]
pub(crate) struct Pod(pub(crate) Value);

/// The documents of a file of `packaging/kubernetes`.
pub(crate) fn documents(file: &str) -> Vec<Value> {
    let path = source_path("packaging/kubernetes").join(file);
    let text = std::fs::read_to_string(path).expect("a manifest");
    let parts = text.split("\n---\n");
    parts
        .map(|part| serde_saphyr::from_str(part).expect("YAML"))
        .collect()
}

impl Pod {
    pub(crate) fn of(file: &str) -> Self {
        let documents = documents(file);
        let mut pods = documents
            .into_iter()
            .filter_map(|document| document.pointer("/spec/template/spec").cloned());
        let pod = pods.next().expect("a pod template");
        assert_eq!(pod["containers"].as_array().map(Vec::len), Some(1));
        Self(pod)
    }

    pub(crate) fn container(&mut self) -> &mut Value {
        &mut self.0["containers"][0]
    }

    /// A field of the container's security context, else of the pod's.
    pub(crate) fn security(&self, field: &str) -> &Value {
        let own = &self.0["containers"][0]["securityContext"][field];
        match own {
            Value::Null => &self.0["securityContext"][field],
            _ => own,
        }
    }

    pub(crate) fn id(&self, field: &str) -> u32 {
        let id = self.security(field).as_u64().expect("an id");
        id.try_into().expect("an id")
    }

    pub(crate) fn has_user_namespace(&self) -> bool {
        self.0["hostUsers"] == false
    }

    /// The mounts of the container: kind, and the mount itself.
    pub(crate) fn mounts(&self) -> Vec<(Volume, Value)> {
        let mounts = self.0["containers"][0]["volumeMounts"].as_array();
        let mounts = mounts.expect("mounts").iter();
        mounts
            .map(|mount| (self.volume(&mount["name"]), mount.clone()))
            .collect()
    }

    fn volume(&self, name: &Value) -> Volume {
        let volumes = self.0["volumes"].as_array().expect("volumes");
        let volume = volumes.iter().find(|volume| volume["name"] == *name);
        let volume = volume.expect("a volume of this name");
        if volume.get("emptyDir").is_some() {
            Volume::Empty
        } else if volume.get("persistentVolumeClaim").is_some() {
            Volume::Claim
        } else if volume.get("secret").is_some() {
            Volume::Secret
        } else {
            panic!("unknown kind of volume: {volume}")
        }
    }

    /// Variables as the environment of a process has them.
    pub(crate) fn environment(&self) -> Vec<String> {
        let list = self.0["containers"][0]["env"].as_array().expect("a list");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        list.iter()
            .map(|one| format!("{}={}", text(&one["name"]), text(&one["value"])))
            .collect()
    }

    pub(crate) fn arguments(&self) -> Vec<String> {
        let list = self.0["containers"][0]["args"].as_array();
        let list = list.expect("a list").iter();
        list.map(|word| word.as_str().expect("text").to_owned())
            .collect()
    }

    /// The limit of memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let text = self.0["containers"][0]["resources"]["limits"]["memory"].as_str();
        let number = text.and_then(|text| text.strip_suffix("Gi"));
        let number: u64 = number.expect("Gi").parse().expect("a number");
        number << 30
    }
}
