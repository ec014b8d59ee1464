{{/* Names are quoted wherever they are used: a release, or a namespace, may be called 123 or true. */}}
{{- define "oomcast.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains "oomcast" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-oomcast" (.Release.Name | trunc 55 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* The job of the rules and boards is taken from it: it has oomcast in it, whatever the release is called. */}}
{{- define "oomcast.monitorName" -}}
{{- $name := include "oomcast.fullname" . -}}
{{- if contains "oomcast" $name }}{{ $name }}{{ else }}{{ printf "%s-oomcast" ($name | trunc 55 | trimSuffix "-") }}{{ end -}}
{{- end -}}

{{/* The name is not to be changed: scrape configurations select pods by it. */}}
{{- define "oomcast.selectorLabels" -}}
app.kubernetes.io/name: oomcast
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "oomcast.labels" -}}
{{- $own := include "oomcast.selectorLabels" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- merge $own (.Values.labels | default dict) | toYaml -}}
{{- end -}}

{{/* The metadata of an object. Takes a dict: root, name, and namespace, labels, annotations where it has its own. */}}
{{- define "oomcast.metadata" -}}
{{- $labels := include "oomcast.labels" .root | fromYaml -}}
{{- $annotations := merge (dict) (.annotations | default dict) (.root.Values.annotations | default dict) -}}
name: {{ .name | quote }}
namespace: {{ .namespace | default .root.Release.Namespace | quote }}
labels:
  {{- merge $labels (.labels | default dict) | toYaml | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "oomcast.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "oomcast.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* off, kernel or programs. An off without quotes is false in YAML. */}}
{{- define "oomcast.ebpf" -}}
{{- if kindIs "bool" .Values.ebpf.mode }}off{{ else }}{{ .Values.ebpf.mode }}{{ end -}}
{{- end -}}

{{- define "oomcast.image" -}}
{{- $suffix := ternary "" "-ebpf" (eq (include "oomcast.ebpf" .) "off") -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ $suffix }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" where the daemon is uid 0: capabilities of another user are of no effect in a container. */}}
{{- define "oomcast.root" -}}
{{- if or (ne (include "oomcast.ebpf" .) "off") .Values.privileges.kernelLog .Values.privileges.otherUsers }}true{{ end -}}
{{- end -}}

{{- define "oomcast.hostPID" -}}
{{- if kindIs "bool" .Values.hostPID -}}
{{- .Values.hostPID -}}
{{- else -}}
{{- or .Values.gpu.enabled (ne (include "oomcast.ebpf" .) "off") -}}
{{- end -}}
{{- end -}}

{{- define "oomcast.memory" -}}
{{- .Values.resources.memory | default (ternary "128Mi" "512Mi" (eq (include "oomcast.ebpf" .) "off")) -}}
{{- end -}}

{{- define "oomcast.appArmor" -}}
{{- if .Values.appArmorProfile -}}
{{- .Values.appArmorProfile -}}
{{- else if or (eq (include "oomcast.ebpf" .) "programs") .Values.privileges.otherUsers -}}
Unconfined
{{- end -}}
{{- end -}}

{{- define "oomcast.securityContext" -}}
{{- $ebpf := include "oomcast.ebpf" . -}}
{{- $root := include "oomcast.root" . -}}
{{- $added := list -}}
{{- if eq $ebpf "kernel" }}{{ $added = concat $added (list "BPF" "PERFMON") }}{{ end -}}
{{- if eq $ebpf "programs" }}{{ $added = concat $added (list "SYS_ADMIN" "SYS_PTRACE" "DAC_READ_SEARCH") }}{{ end -}}
{{- if .Values.privileges.otherUsers }}{{ $added = concat $added (list "DAC_READ_SEARCH" "SYS_PTRACE") | uniq }}{{ end -}}
{{- if .Values.privileges.kernelLog }}
privileged: true
{{- else if ne $ebpf "programs" }}
# Kubernetes refuses it beside the two that imply it: privileged and CAP_SYS_ADMIN.
allowPrivilegeEscalation: false
{{- end }}
{{- if $root }}
runAsUser: 0
runAsGroup: 0
{{- else }}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
{{- end }}
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- with $added }}
  add:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- $profile := include "oomcast.appArmor" . }}
{{- if and $profile (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) }}
appArmorProfile:
  {{- if hasPrefix "Localhost/" $profile }}
  type: Localhost
  localhostProfile: {{ trimPrefix "Localhost/" $profile | quote }}
  {{- else }}
  type: {{ $profile }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* What web.yml says, where this chart writes it. */}}
{{- define "oomcast.webConfig" -}}
{{- if not .Values.web.existingSecret -}}
{{- $derived := dict -}}
{{- if .Values.web.tlsSecret -}}
{{- $_ := set $derived "tls_server_config" (dict "cert_file" "tls.crt" "key_file" "tls.key") -}}
{{- end -}}
{{- with merge (deepCopy (.Values.web.config | default dict)) $derived }}{{ toYaml . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "oomcast.scheme" -}}
{{- if .Values.web.scheme -}}
{{- .Values.web.scheme -}}
{{- else if or .Values.web.existingSecret (hasKey (include "oomcast.webConfig" . | fromYaml) "tls_server_config") -}}
https
{{- else -}}
http
{{- end -}}
{{- end -}}

{{/* A probe's handler. The kubelet has neither password nor certificate: with those, only the port is tried. */}}
{{- define "oomcast.probe" -}}
{{- $web := include "oomcast.webConfig" .root | fromYaml -}}
{{- $clients := dig "tls_server_config" "client_auth_type" "" $web | toString | hasPrefix "Require" -}}
{{- if or .root.Values.web.existingSecret $web.basic_auth_users $web.rate_limit $clients }}
tcpSocket:
  port: metrics
{{- else }}
httpGet:
  path: {{ .path }}
  port: metrics
  scheme: {{ include "oomcast.scheme" .root | upper }}
{{- end }}
{{- end -}}

{{/* oomcast.yaml: what the values ask for, overlaid with what `config` says. */}}
{{- define "oomcast.settings" -}}
{{- /* A section whose lines are all comments, as in the example, is null and says nothing. */}}
{{- $config := deepCopy (.Values.config | default dict) -}}
{{- range list $config ($config.collectors | default dict) -}}
{{- $section := . -}}
{{- range $key, $value := $section }}{{ if kindIs "invalid" $value }}{{ $_ := unset $section $key }}{{ end }}{{ end -}}
{{- end -}}
{{- if hasKey ($config.http | default dict) "listen" }}{{ fail "config.http.listen: set port, listen and hostNetwork instead" }}{{ end -}}
{{- if hasKey ($config.http | default dict) "web_config" }}{{ fail "config.http.web_config: set web instead" }}{{ end -}}
{{- if hasKey $config "paths" }}{{ fail "config.paths: the chart mounts the node below /host and says so itself" }}{{ end -}}
{{- $ebpf := include "oomcast.ebpf" . -}}
{{- if and (eq $ebpf "off") (dig "collectors" "ebpf" "enabled" false $config) }}{{ fail "config.collectors.ebpf.enabled: set ebpf.mode, which gives it image and capabilities" }}{{ end -}}
{{- $collectors := dict -}}
{{- if ne $ebpf "off" -}}
{{- $_ := set $collectors "ebpf" (dict "enabled" true) -}}
{{- end -}}
{{- if eq $ebpf "kernel" -}}
{{- $_ := set $collectors.ebpf "probes" (list "crashes" "oom_kills") -}}
{{- end -}}
{{- if .Values.requests.enabled -}}
{{- $_ := set $collectors "requests" (dict "socket" (printf "%s/requests.sock" .Values.requests.directory)) -}}
{{- end -}}
{{- $derived := dict -}}
{{- with $collectors }}{{ $_ := set $derived "collectors" . }}{{ end -}}
{{- if or .Values.web.existingSecret (include "oomcast.webConfig" .) -}}
{{- $_ := set $derived "http" (dict "web_config" "web.yml") -}}
{{- end -}}
{{- mergeOverwrite $derived $config | toYaml -}}
{{- end -}}
