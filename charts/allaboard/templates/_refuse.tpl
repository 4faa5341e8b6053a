{{- /* Fails, in words, for values that the schema can't know to be wrong. */ -}}
{{- define "allaboard.refuse" -}}
{{- $name := include "allaboard.fullname" . -}}
{{- $settings := default dict .Values.settings -}}
{{- if and (ne $name "allaboard") (has "allaboard" .Values.schedulerNames) -}}
{{- fail (printf "schedulerNames: an installation that is named %s and not allaboard needs names of its own, or two would schedule the same pods (or set fullnameOverride=allaboard)" $name) -}}
{{- end -}}
{{- $place := "the Lease is where its rights are, in the release's namespace" -}}
{{- $port := "probes and Services of the chart want the port that it has" -}}
{{- $problems := dict "lease_namespace" $place "metrics_port" $port "health_port" $port -}}
{{- range $option, $value := dict "scheduler_names" "schedulerNames" "leader_elect" "replicas" "lease_name" "fullnameOverride" "log_format" "logFormat" "admission_port" "admission.port" "pipelines" "pipelines.enabled" "pipeline_namespaces" "pipelines.namespaces" -}}
{{- $_ := set $problems $option (printf "the chart's own value %s says it" $value) -}}
{{- end -}}
{{- range $option, $problem := $problems -}}
{{- range list $option (untitle (camelcase $option)) -}}
{{- if hasKey $settings . -}}
{{- fail (printf "settings.%s: %s" . $problem) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* A kube-scheduler's configuration may say the same in its own words. */ -}}
{{- range $key, $_ := default dict (get $settings "leaderElection") -}}
{{- if or (has $key (list "resourceName" "resourceNamespace")) (hasPrefix "lockObject" $key) -}}
{{- fail (printf "settings.leaderElection.%s: %s, and is named as the release" $key $place) -}}
{{- end -}}
{{- end -}}
{{- range concat (default list (get $settings "profiles")) (list (dict "schedulerName" (get $settings "schedulerName"))) -}}
{{- if and (ne $name "allaboard") (kindIs "map" .) (eq "allaboard" (toString (dig "schedulerName" "" .))) -}}
{{- fail (printf "settings.profiles: an installation that is named %s and not allaboard can't schedule for allaboard, or two would schedule the same pods" $name) -}}
{{- end -}}
{{- end -}}
{{- $ofPods := include "allaboard.podLabels" . | fromYaml -}}
{{- $own := include "allaboard.labels" . | fromYaml -}}
{{- range list (list "podLabels" .Values.podLabels $ofPods) (list "podAnnotations" .Values.podAnnotations (dict "allaboard.dev/settings" "")) (list "serviceMonitor.labels" .Values.serviceMonitor.labels $own) (list "alerts.labels" .Values.alerts.labels $own) (list "dashboard.labels" .Values.dashboard.labels $own) -}}
{{- $where := index . 0 -}}
{{- $kept := index . 2 -}}
{{- range $key, $_ := default dict (index . 1) -}}
{{- if hasKey $kept $key -}}
{{- fail (printf "%s: %s is the chart's own" $where $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.priorityClass.create (not (has (default "" .Values.priorityClass.name) (list "" "system-cluster-critical"))) -}}
{{- fail "priorityClass.name: the one that priorityClass.create makes is named as the release" -}}
{{- end -}}
{{- if and .Values.pipelines.namespaces (not .Values.pipelines.enabled) -}}
{{- fail "pipelines.namespaces: nothing is deployed into them while pipelines.enabled is false" -}}
{{- end -}}
{{- end -}}
