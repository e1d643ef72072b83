{{/* The name of the chart, and of what it makes. */}}
{{- define "gabion.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "gabion.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "gabion.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "gabion.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gabion.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gabion.labels" -}}
{{ include "gabion.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gabion
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The cluster's id. Two releases never share one by accident: their counts would add up. */}}
{{- define "gabion.cluster" -}}
{{- $default := printf "%s.%s" .Release.Namespace (include "gabion.fullname" .) -}}
{{- default $default .Values.gossip.cluster | trunc 63 | trimSuffix "-" | trimSuffix "." -}}
{{- end }}

{{- define "gabion.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "gabion.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: name the account that is there already, or set serviceAccount.create" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "gabion.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end }}

{{/* The Secret with the keys of gossip; empty when gossip is not authenticated. */}}
{{- define "gabion.secret" -}}
{{- $auth := .Values.gossip.auth -}}
{{- if $auth.existingSecret -}}
{{- if or $auth.keys $auth.countersSecret -}}
{{- fail "gossip.auth: give existingSecret, or keys and countersSecret, not both" -}}
{{- end -}}
{{- $auth.existingSecret -}}
{{- else if or $auth.keys $auth.countersSecret -}}
{{- if not (and $auth.keys $auth.countersSecret) -}}
{{- fail "gossip.auth: keys and countersSecret go together; docs/kubernetes.md says how to make both" -}}
{{- end -}}
{{- printf "%s-keys" (include "gabion.fullname" .) -}}
{{- end -}}
{{- end }}

{{- define "gabion.families" -}}
{{- with .Values.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
ipFamilies: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Where the members are. */}}
{{- define "gabion.discovery" -}}
{{- $service := printf "%s-gossip" (include "gabion.fullname" .) -}}
{{- $d := .Values.discovery -}}
{{- if eq $d.method "dns" -}}
{{- if or $d.namespaces $d.services -}}
{{- fail "discovery: namespaces and services need method: kubernetes" -}}
{{- end -}}
{{- $name := printf "%s.%s.svc.%s" $service .Release.Namespace $d.clusterDomain -}}
dns: {{ printf "%s:%d" $name (int .Values.ports.gossip) }}
{{- else -}}
service_allow: {{ toJson (concat (list $service) $d.services) }}
gossip_port: gossip
{{- if $d.namespaces }}
namespace_allow: {{ toJson (concat (list .Release.Namespace) $d.namespaces | uniq) }}
{{- end }}
{{- end -}}
{{- end }}

{{/* gabiond.yaml: the values' settings, and the chart's own, which the values may not contradict. */}}
{{- define "gabion.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- $instead := dict "envoy_bind" "listenAddress and ports.grpc" "admin_bind" "listenAddress and ports.admin" "drain_timeout" "shutdown.drainSeconds" "limits" "policy" "flags" "policy" "attributes" "policy" "rules_file" "policy" "discovery" "discovery" -}}
{{- range $key, $value := $instead -}}
{{- if hasKey $settings $key -}}
{{- fail (printf "settings.%s: the chart sets it; use %s" $key $value) -}}
{{- end -}}
{{- end -}}
{{- $gossip := default dict $settings.gossip -}}
{{- range $key := list "bind" "cluster_id" "cluster_id_hash" "auth_key_file" "key_secret_file" -}}
{{- if hasKey $gossip $key -}}
{{- fail (printf "settings.gossip.%s: the chart sets it; use gossip, listenAddress and ports.gossip" $key) -}}
{{- end -}}
{{- end -}}
{{- $listen := .Values.listenAddress -}}
{{- $own := dict "bind" (printf "%s:%d" $listen (int .Values.ports.gossip)) "cluster_id" (include "gabion.cluster" .) -}}
{{- if include "gabion.secret" . -}}
{{- $own = merge $own (dict "auth_key_file" "/etc/gabion-keys/gossip.keys" "key_secret_file" "/etc/gabion-keys/counters.secret") -}}
{{- end -}}
{{- $_ := set $settings "gossip" (merge $own $gossip) -}}
{{- $_ := set $settings "envoy_bind" (printf "%s:%d" $listen (int .Values.ports.grpc)) -}}
{{- $_ := set $settings "admin_bind" (printf "%s:%d" $listen (int .Values.ports.admin)) -}}
{{- $_ := set $settings "drain_timeout" (printf "%ds" (int .Values.shutdown.drainSeconds)) -}}
{{- $_ := set $settings "rules_file" "policy.yaml" -}}
{{- $_ := set $settings "discovery" (include "gabion.discovery" . | fromYaml) -}}
{{- toYaml $settings -}}
{{- end }}
