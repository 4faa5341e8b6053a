{{- /* Short enough for the suffixes: the name of a Service has 63 characters at most. */ -}}
{{- define "allaboard.fullname" -}}
{{- $added := default "allaboard" .Values.nameOverride -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name $added) (contains $added .Release.Name) -}}
{{- /* A release may have dots in its name, and a Service may not. */ -}}
{{- default $name .Values.fullnameOverride | replace "." "-" | trunc 50 | regexFind "^.*[^-]" -}}
{{- end -}}

{{- define "allaboard.selectorLabels" -}}
app.kubernetes.io/name: allaboard
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "allaboard.podLabels" -}}
{{ include "allaboard.selectorLabels" . }}
app.kubernetes.io/part-of: allaboard
{{- end -}}

{{- define "allaboard.labels" -}}
{{ include "allaboard.podLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "allaboard.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "allaboard.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "allaboard.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* A digest of the settings that a running scheduler doesn't apply when they change; empty if there are none. */ -}}
{{- define "allaboard.settingsOfTheStart" -}}
{{- $stated := deepCopy (default dict .Values.settings) -}}
{{- range list "objective" "topology" "packing" "gpu" "schedule_timeout_seconds" "scheduleTimeoutSeconds" "profiles" -}}
{{- $_ := unset $stated . -}}
{{- end -}}
{{- with $stated -}}{{- toJson . | sha256sum | trunc 16 | quote -}}{{- end -}}
{{- end -}}

{{- /* Not empty if this installation schedules the test's gang, which is in the release's namespace. */ -}}
{{- define "allaboard.isTested" -}}
{{- $stated := get (default dict .Values.settings) "namespaces" | default list -}}
{{- $names := ternary $stated (splitList "," (toString $stated)) (kindIs "slice" $stated) -}}
{{- if or (empty $stated) (has .Release.Namespace $names) -}}true{{- end -}}
{{- end -}}

{{- /* The rules of a role, read from config/, where they are explained. */ -}}
{{- define "allaboard.rules" -}}
{{- (index . 0).Files.Get (printf "files/%s" (index . 1)) | fromYaml | dig "rules" list | toYaml -}}
{{- end -}}

{{- define "allaboard.metadata" -}}
name: {{ print (include "allaboard.fullname" (index . 0)) (index . 1) | quote }}
labels:
  {{- include "allaboard.labels" (index . 0) | nindent 2 }}
{{- end -}}
