{{- /* Fails with a message for wrong values that the schema can't recognise. */ -}}
{{- define "allaboard.refuse" -}}
{{- $name := include "allaboard.fullname" . -}}
{{- if and (ne $name "allaboard") (has "allaboard" .Values.schedulerNames) -}}
{{- fail (printf "schedulerNames: an installation that is named %s and not allaboard needs names of its own, or two would schedule the same pods (or set fullnameOverride=allaboard)" $name) -}}
{{- end -}}
{{- include "allaboard.refuseSettings" . -}}
{{- include "allaboard.refuseExtras" . -}}
{{- if and .Values.priorityClass.create (not (has (default "" .Values.priorityClass.name) (list "" "system-cluster-critical"))) -}}
{{- fail "priorityClass.name: the one that priorityClass.create makes is named as the release" -}}
{{- end -}}
{{- if has (int .Values.admission.port) (list 8080 8081) -}}
{{- fail "admission.port: 8080 and 8081 are those of metrics and health" -}}
{{- end -}}
{{- if and .Values.pipelines.namespaces (not .Values.pipelines.enabled) -}}
{{- fail "pipelines.namespaces: nothing is deployed into them while pipelines.enabled is false" -}}
{{- end -}}
{{- end -}}

{{- /* Settings that the chart's own values, rights and ports already state. A kube-scheduler's configuration spells them in its own way, in 2020 with any capitals. */ -}}
{{- define "allaboard.refuseSettings" -}}
{{- $name := include "allaboard.fullname" . -}}
{{- $settings := default dict .Values.settings -}}
{{- $place := "the Lease is where its rights are, in the release's namespace" -}}
{{- $port := "probes and Services of the chart want the port that it has" -}}
{{- $problems := dict "lease_namespace" $place "metrics_port" $port "health_port" $port "api_port" $port -}}
{{- range $option, $value := dict "scheduler_names" "schedulerNames" "leader_elect" "replicas" "lease_name" "fullnameOverride" "log_format" "logFormat" "admission_port" "admission.port" "pipelines" "pipelines.enabled" "pipeline_namespaces" "pipelines.namespaces" "provisioning_class" "provisioning.class" "api_service_port" "api.enabled" "ui" "ui.enabled" -}}
{{- $_ := set $problems $option (printf "the chart's own value %s says it" $value) -}}
{{- end -}}
{{- range $option, $problem := $problems -}}
{{- range list $option (untitle (camelcase $option)) -}}
{{- if hasKey $settings . -}}
{{- fail (printf "settings.%s: %s" . $problem) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $profiles := list $settings -}}
{{- range $key, $value := $settings -}}
{{- if and (eq (lower $key) "leaderelection") (kindIs "map" $value) -}}
{{- range $each, $_ := $value -}}
{{- if or (has (lower $each) (list "resourcename" "resourcenamespace")) (hasPrefix "lockobject" (lower $each)) -}}
{{- fail (printf "settings.%s.%s: %s, and is named as the release" $key $each $place) -}}
{{- end -}}
{{- end -}}
{{- else if and (eq (lower $key) "profiles") (kindIs "slice" $value) -}}
{{- $profiles = concat $profiles $value -}}
{{- end -}}
{{- end -}}
{{- range $profile := $profiles -}}
{{- range $key, $value := ternary $profile dict (kindIs "map" $profile) -}}
{{- if and (ne $name "allaboard") (eq (lower $key) "schedulername") (eq (toString $value) "allaboard") -}}
{{- fail (printf "settings.profiles: an installation that is named %s and not allaboard can't schedule for allaboard, or two would schedule the same pods" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Entries that users add to lists and mappings in which the chart has entries of its own. */ -}}
{{- define "allaboard.refuseExtras" -}}
{{- range .Values.extraEnv -}}
{{- if hasPrefix "ALLABOARD_" (upper .name) -}}
{{- fail (printf "extraEnv: %s would win over what the chart's values say; settings are the value settings" .name) -}}
{{- end -}}
{{- end -}}
{{- range list (list "extraEnv" "name" .Values.extraEnv list) (list "imagePullSecrets" "name" .Values.imagePullSecrets list) (list "extraVolumes" "name" .Values.extraVolumes (list "settings" "tmp")) (list "extraVolumeMounts" "mountPath" .Values.extraVolumeMounts (list "/etc/allaboard" "/tmp")) -}}
{{- $where := index . 0 -}}
{{- $key := index . 1 -}}
{{- $seen := index . 3 -}}
{{- range index . 2 -}}
{{- $stated := get . $key -}}
{{- if has (trimSuffix "/" $stated) $seen -}}
{{- fail (printf "%s: %s is there already" $where $stated) -}}
{{- end -}}
{{- $seen = append $seen (trimSuffix "/" $stated) -}}
{{- end -}}
{{- end -}}
{{- $own := include "allaboard.labels" . | fromYaml -}}
{{- $ofPods := include "allaboard.podLabels" . | fromYaml -}}
{{- $annotations := dict "allaboard.dev/settings" "" "kubectl.kubernetes.io/default-container" "" -}}
{{- range list (list "podLabels" .Values.podLabels $ofPods) (list "podAnnotations" .Values.podAnnotations $annotations) (list "serviceMonitor.labels" .Values.serviceMonitor.labels $own) (list "alerts.labels" .Values.alerts.labels $own) (list "dashboard.labels" .Values.dashboard.labels $own) -}}
{{- $where := index . 0 -}}
{{- $kept := index . 2 -}}
{{- range $key, $_ := index . 1 -}}
{{- if hasKey $kept $key -}}
{{- fail (printf "%s: %s is the chart's own" $where $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
