{{- define "words.settings" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels:
    part-of: {{ .root.Release.Name }}
data: {{- toYaml .data | nindent 2 }}
{{- end -}}
