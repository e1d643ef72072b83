//! What to create when the API server lets a member see nothing.
//!
//! I own the text of the Role and its RoleBinding. I promise that they are whole, valid, and give
//! no more than what is needed. I never create them.

use super::words::is_label;

/// The Role and the RoleBinding that let the user whom `said` (the server's refusal) names watch
/// the slices of `namespace`. Without a user in it, the default service account is taken.
pub(super) fn role(namespace: &str, said: &str) -> String {
    let user = said
        .split_once("User \"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(user, _)| user);
    let account = user.and_then(|user| {
        let (space, name) = user
            .strip_prefix("system:serviceaccount:")?
            .split_once(':')?;
        let plain = name.split('.').all(is_label);
        (is_label(space) && plain).then_some((space, name))
    });
    let subject = match (account, user) {
        (None, Some(user)) => format!(
            "- kind: User\n  apiGroup: rbac.authorization.k8s.io\n  name: {}",
            // Texts of JSON are texts of YAML.
            serde_json::Value::from(user)
        ),
        (account, _) => {
            let (space, name) = account.unwrap_or((namespace, "default"));
            format!("- kind: ServiceAccount\n  name: {name}\n  namespace: {space}")
        }
    };
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: gabion-discovery
  namespace: {namespace}
rules:
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: gabion-discovery
  namespace: {namespace}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: gabion-discovery
subjects:
{subject}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_taken_from_the_refusal() {
        let said = "endpointslices.discovery.k8s.io is forbidden: User \
                    \"system:serviceaccount:prod:edge\" cannot list resource \"endpointslices\"";
        let role = role("shop", said);
        let subject = "subjects:\n- kind: ServiceAccount\n  name: edge\n  namespace: prod";
        assert!(role.ends_with(subject), "{role}");
        assert_eq!(role.matches("  namespace: shop\n").count(), 2, "{role}");
        assert_eq!(role.matches("verbs: [get, list, watch]").count(), 1);
    }

    #[test]
    fn people_and_nonsense_are_quoted() {
        let people = role("shop", "User \"alice: b\" cannot");
        assert!(people.ends_with("  name: \"alice: b\""), "{people}");
        let odd = role("shop", "User \"system:serviceaccount:a:b c\nd\" cannot");
        assert!(
            odd.ends_with("  name: \"system:serviceaccount:a:b c\\nd\""),
            "{odd}"
        );
        let unsaid = role("shop", "no");
        assert!(
            unsaid.ends_with("name: default\n  namespace: shop"),
            "{unsaid}"
        );
    }
}
